package cli

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"gdrcp/rdma"
	"gdrcp/xfer"
)

// docs/json-events.md has every event with every field.
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
		{"waiting", "", waitingEvent{}}, {"connected", "", connectedEvent{}}, {"retry", "", retryEvent{}}, {"rail", "", railEvent{}}, {"memory", "", memoryEvent{}},
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

// jsonNames are the names of a struct's fields, in the form in which the page has them.
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
