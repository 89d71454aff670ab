package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"gdrcp/rdma"
	"gdrcp/xfer"
)

// A terminal shows the output of --json unchanged, and a parser reads the original
// names.
func TestJSONIsPrintable(t *testing.T) {
	for _, name := range []string{"plain", "größe 漢", "a\u009b2J\u202egpj\u2066\u200b", "\U000e0001\U0001f600", "\x7f\x1b\n", "\u00a0<&>"} {
		var out bytes.Buffer
		newEvents(&out).emit(fileEvent{Event: "file", Path: name})
		line := strings.TrimSuffix(out.String(), "\n")
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q: %q is not printable", name, line[i:])
		}
		var event struct{ Path string }
		if err := json.Unmarshal(out.Bytes(), &event); err != nil || event.Path != name {
			t.Errorf("%q: %q, %v", name, event.Path, err)
		}
	}
}

// docs/json-events.md documents every field of every event.
func TestEventsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/json-events.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "**Fields that several events have.**")
	shared := strings.Split(list, "\n- ")
	events := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			events[strings.Trim(cells[1], " `")] = cells[3]
		}
	}
	for _, c := range []struct {
		where  string
		text   string
		fields any
	}{
		{"waiting", "", waitingEvent{}}, {"connected", "", connectedEvent{}}, {"retry", "", retryEvent{}}, {"afresh", "", afreshEvent{}}, {"warning", "", warningEvent{}}, {"rail", "", railEvent{}}, {"memory", "", memoryEvent{}},
		{"ring", "", ringEvent{}}, {"progress", "", progressEvent{}}, {"file", "", fileEvent{}}, {"not_deleted", "", deletedEvent{}}, {"summary", "", summaryEvent{}},
		{"error", "", errorEvent{}}, {"bandwidth", "", bandwidthEvent{}}, {"disk", "", diskEvent{}}, {"slower", "", slowerEvent{}}, {"latency", "", latencyEvent{}},
		{"device", "", deviceEvent{}}, {"gpu", "", gpuEvent{}}, {"no_gpu", "", noGPUEvent{}}, {"created", "", auditEvent{}}, {"difference", "", differenceEvent{}},
		{"compared", "", comparedEvent{}},
		{"device", "", rdma.Port{}}, {"summary", "", xfer.RailUse{}}, {"summary", "", xfer.DiskIO{}}, {"difference", "", rangeField{}},
		{"link fields", shared[1], linkFields{}}, {"slots fields", shared[2], xfer.Memory{}}, {"cost fields", shared[3], costField{}},
	} {
		row := c.text
		if row == "" {
			row = events[c.where]
		}
		for _, name := range jsonNames(reflect.TypeOf(c.fields)) {
			if !strings.Contains(row, name) {
				t.Errorf("%s: %s is missing", c.where, name)
			}
		}
	}
}

// jsonNames returns the names of a struct's fields, in the form that the page uses.
func jsonNames(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[linkFields]():
			names = append(names, "link fields")
		case f.Anonymous && f.Type == reflect.TypeFor[xfer.Memory]():
			names = append(names, "slots fields")
		case f.Anonymous:
			names = append(names, jsonNames(f.Type)...)
		case name != "event":
			names = append(names, "`"+name+"`")
		}
	}
	return names
}
