package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 9}, 3},
	}
	for _, tt := range tests {
		before := slices.Clone(tt.values)
		if got := median(tt.values); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.values, got, tt.want)
		}
		if !slices.Equal(before, tt.values) {
			t.Errorf("median reordered %v", before)
		}
	}
	if got := median(nil); got == got {
		t.Errorf("median of nothing is %v, not NaN", got)
	}
}

func TestBeyond(t *testing.T) {
	got := beyond([]float64{7, 9, 5}, []float64{4, 4, 6})
	if want := []float64{3, 5, -1}; !slices.Equal(got, want) {
		t.Errorf("beyond = %v, want %v: each run against the one in its round", got, want)
	}
}

func TestInMilliseconds(t *testing.T) {
	c := inMilliseconds(&competitor{name: "sleep", run: timed("sleep", "0.2")})
	took, err := c.run(t.Context())
	if err != nil || took < 200 || took > 20_000 {
		t.Errorf("a sleep of 200 ms took %v ms, %v", took, err)
	}
	if _, err := inMilliseconds(&competitor{name: "false", run: timed("false")}).run(t.Context()); err == nil {
		t.Error("a command that failed was timed")
	}
}

func TestTogether(t *testing.T) {
	if took, err := together(t.Context(), []string{"sleep", "0.2"}, []string{"sleep", "0.2"}); err != nil || took < 0.2 {
		t.Errorf("two sleeps of 0.2 s took %v s, %v", took, err)
	}
	if _, err := together(t.Context(), []string{"true"}, []string{"false"}); err == nil {
		t.Error("of two commands one failed, and both together did not")
	}
}

// Paths survive being split by --rsh and --remote-path.
func TestCopyOverSSH(t *testing.T) {
	o := options{program: "/a b/gdrcp"}
	want := []string{"/a b/gdrcp", "-q", "--rsh", "ssh -F '/c d/config'", "--remote-path", "'/a b/gdrcp'", "f", "host:/f"}
	if got := o.copyOverSSH("/c d/config", "f", "host:/f"); !slices.Equal(got, want) {
		t.Errorf("command %q, want %q", got, want)
	}
}

func TestTable(t *testing.T) {
	rows := []row{
		{name: "time", unit: "s", ours: []float64{2}, peer: "slow", peers: []float64{5}, goal: 2},
		{name: "rate", unit: "MiB/s", ours: []float64{50, 60, 40}, peer: "wire", peers: []float64{100}, goal: 0.75},
		{name: "limit", unit: "ms", ours: []float64{200}, goal: 150},
		{name: "told", unit: "s", ours: []float64{2}, peer: "other", peers: []float64{1}},
	}
	var printed bytes.Buffer
	if err := printTable(&printed, rows); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(printed.String()), "\n")
	want := [][]string{{"time", "2.50", ">= 2", "met"}, {"rate", "0.50", "50 MiB/s (40-60)", ">= 0.75", "MISSED"}, {"limit", "<= 150 ms", "MISSED"}, {"told", "0.50"}}
	if len(lines) != len(want)+1 {
		t.Fatalf("printed %q", lines)
	}
	for i, words := range want {
		for _, word := range words {
			if !strings.Contains(lines[i+1], word) {
				t.Errorf("line %q lacks %q", lines[i+1], word)
			}
		}
	}
	if strings.Contains(lines[4], "met") || strings.Contains(lines[4], "MISSED") {
		t.Errorf("line %q judges without a goal", lines[4])
	}
}

func TestFile(t *testing.T) {
	if full.file() != "2 GiB" || short.file() != "64 MiB" {
		t.Errorf("files of %s and %s", full.file(), short.file())
	}
}

func TestParsePerftest(t *testing.T) {
	const header = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
	tests := []struct {
		name, printed string
		want          float64 // 0: an error
	}{
		{"result", header + " 1048576    128              119.60             114.01 \t\t   0.000114\n---\n", 114.01},
		{"no result", header, 0},
		{"another size", header + " 65536    128              119.60             114.01   0.1\n", 0},
		{"not a number", header + " 1048576    128   119.60    nan?   0.1\n", 0},
		{"nothing moved", header + " 1048576    128   0.00    0.00   0.00\n", 0},
	}
	for _, tt := range tests {
		got, err := parsePerftest(tt.printed)
		if got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestEventField(t *testing.T) {
	const events = `{"event":"bandwidth","hash":"none","mib_per_s":900.5}
{"event":"bandwidth","hash":"xxh3","mib_per_s":700}
{"event":"latency","op":"send","mib_per_s":1}
`
	tests := []struct {
		name, lines, event, hash string
		want                     float64 // 0: an error
	}{
		{"plain", events, "bandwidth", "none", 900.5},
		{"hashed", events, "bandwidth", "xxh3", 700},
		{"absent", events, "bandwidth", "blake3", 0},
		{"another event", events, "summary", "none", 0},
		{"not JSON", "warming up\n" + events, "bandwidth", "none", 0},
		{"zero", `{"event":"bandwidth","hash":"none","mib_per_s":0}`, "bandwidth", "none", 0},
	}
	const nested = `{"event":"bandwidth","hash":"none","mib_per_s":1,"remote_cost":{"cpu_seconds_per_gib":0.25}}`
	if got, err := eventField(nested, "bandwidth", nil, "remote_cost.cpu_seconds_per_gib"); err != nil || got != 0.25 {
		t.Errorf("a GiB took %v s, %v", got, err)
	}
	for _, tt := range tests {
		got, err := eventField(tt.lines, tt.event, map[string]string{"hash": tt.hash}, "mib_per_s")
		if got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}

func TestAlternateTakesTurns(t *testing.T) {
	var order []string
	turn := func(name string, cold bool) *competitor {
		return &competitor{
			name: name, cold: cold,
			prepare: func(context.Context) error { order = append(order, "prepare "+name); return nil },
			run:     func(context.Context) (float64, error) { order = append(order, name); return 1, nil },
			check: func(_ context.Context, thorough bool) error {
				if thorough {
					order = append(order, "thorough "+name)
				}
				return nil
			},
		}
	}
	values, err := alternate(t.Context(), io.Discard, 2, []*competitor{turn("a", false), turn("b", true)})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"prepare a", "a", "thorough a",
		"prepare a", "a", "prepare b", "b", "thorough b",
		"prepare a", "a", "prepare b", "b",
	}
	if !slices.Equal(order, want) {
		t.Errorf("order %q, want %q", order, want)
	}
	if len(values["a"]) != 2 || len(values["b"]) != 2 {
		t.Errorf("values %v, want two each", values)
	}
}

func TestAlternateStopsAtABadCopy(t *testing.T) {
	bad := errors.New("differs")
	c := &competitor{
		name: "a", run: func(context.Context) (float64, error) { return 1, nil },
		check: func(context.Context, bool) error { return bad },
	}
	if _, err := alternate(t.Context(), io.Discard, 2, []*competitor{c}); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
}

func TestCompare(t *testing.T) {
	source := t.TempDir()
	write := func(folder, name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(folder, "d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "d", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(folder, target string) {
		t.Helper()
		if err := os.Symlink(target, filepath.Join(folder, "d", "link")); err != nil {
			t.Fatal(err)
		}
	}
	write(source, "f", "12345")
	link(source, "f")
	tests := []struct {
		name     string
		make     func(folder string)
		thorough bool
		ok       bool
	}{
		{"same", func(c string) { write(c, "f", "12345"); link(c, "f") }, true, true},
		{"link followed", func(c string) { write(c, "f", "12345"); write(c, "link", "12345") }, false, false},
		{"shorter", func(c string) { write(c, "f", "1234"); link(c, "f") }, false, false},
		{"other bytes, cheap check", func(c string) { write(c, "f", "1234X"); link(c, "f") }, false, true},
		{"other bytes", func(c string) { write(c, "f", "1234X"); link(c, "f") }, true, false},
		{"other link", func(c string) { write(c, "f", "12345"); link(c, "g") }, true, false},
		{"one too many", func(c string) { write(c, "f", "12345"); link(c, "f"); write(c, "g", "") }, false, false},
		{"nothing", func(string) {}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			copied := filepath.Join(t.TempDir(), "copy")
			tt.make(copied)
			err := compare(t.Context(), source, copied, tt.thorough)
			if (err == nil) != tt.ok {
				t.Errorf("compare: %v, want ok=%v", err, tt.ok)
			}
		})
	}
}

func TestServer(t *testing.T) {
	s, err := startServer(t.Context(), "I am ready", "sh", "-c", "printf 'I am ready'; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	if s.cmd.ProcessState == nil {
		t.Error("the process has not ended")
	}
	if _, err := startServer(t.Context(), "I am ready", "sh", "-c", "echo no luck >&2; exit 3"); err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("error %v does not say what the server printed", err)
	}
}

func TestConnectingAgain(t *testing.T) {
	for _, c := range []struct {
		fails string
		times int // number of failures
		runs  int
		fine  bool
	}{
		{"rcopy: exit status 1: rconnect failed: Invalid argument", 2, 3, true},
		{"rcopy: exit status 1: rconnect failed: Invalid argument", 9, 5, false},
		{"rcopy: exit status 1: write failed", 9, 1, false},
	} {
		runs := 0
		run := options{log: io.Discard}.again("rconnect failed", func(context.Context) (float64, error) {
			if runs++; runs <= c.times {
				return 0, errors.New(c.fails)
			}
			return 7, nil
		})
		value, err := run(t.Context())
		if runs != c.runs || (err == nil) != c.fine || (value == 7) != c.fine {
			t.Errorf("%s, %d times: %v, %v after %d runs", c.fails, c.times, value, err, runs)
		}
	}
}

// TestTookOf: a working process uses processor time and memory.
func TestTookOf(t *testing.T) {
	s, err := startServer(t.Context(), "up", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo up; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	if cpu, peak, err := tookOf(s.cmd.Process.Pid); err != nil || cpu <= 0 || cpu > 60 || peak <= 0 || peak > 1000 {
		t.Errorf("a loop of a shell took %v s and %v MiB, %v", cpu, peak, err)
	}
	if _, _, err := tookOf(-1); err == nil {
		t.Error("no process took something")
	}
}
