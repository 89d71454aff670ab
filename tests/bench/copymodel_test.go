package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want) }

// TestForecast: a copy is as fast as the stage that lets the least pass, whichever that is, and
// takes what it takes at its start and end beside that.
func TestForecast(t *testing.T) {
	wire, disk, busy := stage{"wire", 2, 0.02}, stage{"disk", 8, 0.1}, stage{"processors", 2, 0.04} // 100, 80, 50 MiB/s
	for _, c := range []struct {
		name    string
		costs   copyCosts
		full    string
		seconds float64
	}{
		{"one stage", steady(200, 0, wire), "wire", 2},
		{"the last is full", steady(200, 0, wire, disk, busy), "processors", 4},
		{"the first is full", steady(200, 0, busy, wire, disk), "processors", 4},
		{"the one between is full", steady(240, 0, wire, disk), "disk", 3},
		{"start and end", steady(200, 1.5, wire), "wire", 3.5},
		{"nearly nothing", steady(0, 1.5, wire), "wire", 1.5},
		// 2 s at 50 MiB/s, and 100 MiB at 100.
		{"two spells", copyCosts{200, 1, []spell{{2, []stage{busy}}, {0, []stage{wire}}}}, "wire", 4},
		{"an end in the first spell", copyCosts{50, 1, []spell{{2, []stage{busy}}, {0, []stage{wire}}}}, "processors", 2},
	} {
		f := c.costs.forecast()
		if f.full.name != c.full || !near(f.seconds, c.seconds) || !near(f.mibPerSecond, c.costs.mib/c.seconds) && c.costs.mib > 0 {
			t.Errorf("%s: %+v; want %s full, %v s", c.name, f, c.full, c.seconds)
		}
	}
}

// TestForecastIsMonotonic: what costs more never makes a copy faster, and what there is more of
// never makes it slower.
func TestForecastIsMonotonic(t *testing.T) {
	seconds := func(mib, fixed, wire, rails, disk, requests float64) float64 {
		return steady(mib, fixed, stage{"wire", rails, wire}, stage{"disk", requests, disk}).forecast().seconds
	}
	for _, wire := range []float64{0.001, 0.01, 0.1} {
		for _, disk := range []float64{0.001, 0.01, 0.1} {
			base := seconds(100, 1, wire, 2, disk, 8)
			for name, more := range map[string]float64{
				"bytes": seconds(101, 1, wire, 2, disk, 8) - base, "fixed": seconds(100, 1.1, wire, 2, disk, 8) - base,
				"wire": seconds(100, 1, wire*1.1, 2, disk, 8) - base, "disk": seconds(100, 1, wire, 2, disk*1.1, 8) - base,
				"fewer rails": seconds(100, 1, wire, 1, disk, 8) - base, "fewer requests": seconds(100, 1, wire, 2, disk, 7) - base,
			} {
				if more < 0 {
					t.Errorf("more %s made a copy with %v and %v s for a MiB faster by %v s", name, wire, disk, -more)
				}
			}
		}
	}
}

func TestProcessors(t *testing.T) {
	if got, want := processors(0.5, 0.01).mibPerSecond(), 50*float64(runtime.NumCPU()); !near(got, want) {
		t.Errorf("processors that are busy for 10 ms with a MiB, half of the time, let %v MiB/s pass, want %v", got, want)
	}
}

func TestPayloadOfAWire(t *testing.T) {
	if got := secondsPerMiB(8, 1); !near(got, 1.048576) {
		t.Errorf("8 Mb/s carry a MiB in %v s", got)
	}
	if got := secondsPerMiB(20, 0.5); !near(got, 4*secondsPerMiB(40, 1)) {
		t.Errorf("20 Mb/s, half of them payload, carry a MiB in %v s", got)
	}
	if got := payloadShare(75, 25); got != 0.75 {
		t.Errorf("payload is %v of 75 bytes of it and 25 others", got)
	}
}

// TestModelRow: the row judges the measure of its unit, and names the stage that is full.
func TestModelRow(t *testing.T) {
	var log strings.Builder
	o := options{log: &log}
	c := steady(100, 1, stage{"wire", 1, 0.01}, stage{"disk", 1, 0.001}) // 2 s
	for unit, want := range map[string]float64{"s": 2, "MiB/s": 50} {
		r := o.modelRow("copy", []float64{want * 1.1}, unit, c)
		if len(r.peers) != 1 || !near(r.peers[0], want) || r.peer != "the model, wire" || r.within != modelWithin || !r.met() {
			t.Errorf("%s: %+v, want %v", unit, r, want)
		}
		if r := o.modelRow("copy", []float64{want * 1.3}, unit, c); r.met() {
			t.Errorf("%s: 1.3 times as much counts as near", unit)
		}
	}
	if !strings.Contains(log.String(), "model of copy: 100 MiB, 1 s at start and end; wire: 1 at once, 10 ms for a MiB, 100 MiB/s") {
		t.Errorf("logged %q", &log)
	}
}

// TestDeviceRows: each cost comes from what measured it, and goes into the rows that have it.
func TestDeviceRows(t *testing.T) {
	o := options{log: io.Discard, sizes: sizes{bedFileMiB: 100}}
	d := bedDevice{kind: "d", memoryMiB: 200}
	values := map[string][]float64{"none": {1}, "xxh3": {1}, "gdrcp": {1}, "digests": {100}, "kibibyte": {2}, "half": {0.8 * float64(runtime.NumCPU()) / 0.02}}
	busy := busyTime{"half": {2.98}, "one chunk": {1}, "files": {3}} // 20 ms for a MiB, and 30 for files
	both := 0.8 * float64(runtime.NumCPU())                          // as busy as with half of the bytes
	for _, c := range []struct {
		wire float64
		full string
		want []float64
	}{
		{1e6, "processors", []float64{both / 0.02, both / 0.04, 100 / (2 + 100*0.07/both)}},
		{1, "wire", []float64{1, 1, 100 / 102.0}},
	} {
		rows := o.modelRows(d, []float64{c.wire}, values, busy)
		for i, r := range rows {
			if r.unit != "MiB/s" || !near(r.peers[0], c.want[i]) || r.peer != "the model, "+c.full {
				t.Errorf("wire of %v MiB/s: %+v, want %v", c.wire, r, c.want[i])
			}
		}
		if len(rows) != len(c.want) {
			t.Errorf("%d rows", len(rows))
		}
	}
}

// TestShareOf: a copy that fills the wire does not tell how busy the processors can be.
func TestShareOf(t *testing.T) {
	c := deviceCosts{wire: 100, engineBusy: 0.01 * float64(runtime.NumCPU())}
	for rate, want := range map[float64]float64{50: 0.5, 94: 0.94, 95: 1, 300: 1} {
		if got := c.shareOf(rate); !near(got, want) {
			t.Errorf("at %v of 100 MiB/s the share is %v, want %v", rate, got, want)
		}
	}
}

// TestDeviceWire: a wire that carries less than the processors could move is full first.
func TestDeviceWire(t *testing.T) {
	c := deviceCosts{wire: 50, engineBusy: 0.001, share: 1, digestBusy: 0.001, filesBusy: 0.001, start: 1}
	for name, costs := range map[string]copyCosts{"memory": c.memory(100, 2), "file": c.file(100)} {
		if f := costs.forecast(); f.full.name != "wire" || !near(f.seconds-costs.fixedSeconds, 2) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestDigesting(t *testing.T) {
	if got, err := digesting().run(t.Context()); err != nil || got <= 0 {
		t.Errorf("each processor digests %v MiB/s, %v", got, err)
	}
}

// TestMoving: all parts are read and written, and nothing stays.
func TestMoving(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := writeRandom(source, 8<<20); err != nil {
		t.Fatal(err)
	}
	c := options{sizes: short}.moving(source, filepath.Join(dir, "to"))
	if got, err := c.run(t.Context()); err != nil || got <= 0 {
		t.Fatalf("%v MiB/s, %v", got, err)
	}
	total, err := count(dir)
	if want := int64(8<<20 + 8/runtime.NumCPU()*runtime.NumCPU()<<20); err != nil || total.bytes != want {
		t.Errorf("%d bytes are there, %v; want %d", total.bytes, err, want)
	}
	if err := c.check(t.Context(), true); err != nil {
		t.Error(err)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%d files stay, %v", len(names), err)
	}
}

// TestFarCosts: what comes over the wire is also written, by the one processor there is.
func TestFarCosts(t *testing.T) {
	f := farCosts(100, 1.5, 50, 0.5).forecast()
	if f.full.name != "the sink's processor" || !near(f.seconds, 1.5+2+0.5) {
		t.Errorf("%+v, want 4 s", f)
	}
}

// TestSourceOf: each copy is compared with the file that it is of.
func TestSourceOf(t *testing.T) {
	files := wireFiles{"wires", "far", "kibibyte"}
	for name, want := range map[string]string{"rxe0-3": "wires", farPrefix + "2": "far", startPrefix + "rxe0-1": "kibibyte", startPrefix + "2": "kibibyte"} {
		if got := files.sourceOf(name); got != want {
			t.Errorf("a copy called %s is of %s, want %s", name, got, want)
		}
	}
}
