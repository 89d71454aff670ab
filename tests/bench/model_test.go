package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// TestForecast: each stage can be the one that is full first, and what a copy takes
// follows from its rate.
func TestForecast(t *testing.T) {
	quick := costs{digestGBs: 20, chunkTaken: time.Microsecond}
	for _, c := range []struct {
		name  string
		costs costs
		rails int
		gbps  float64
		full  string
		gbs   float64
	}{
		{"one rail", quick, 1, 100, "wire", 12.125},
		{"the memory of one socket", quick, 1, 800, "memory", 250.0 / 3},
		{"the memory of two", quick, 8, 400, "memory", 500.0 / 3},
		{"slow digests", costs{digestGBs: 1}, 4, 100, "workers that compute", 24},
	} {
		f := forecastOf(c.costs, c.rails, c.gbps)
		if f.full != c.full || math.Abs(f.rateGBs-c.gbs) > 1e-6*c.gbs {
			t.Errorf("%s: %s is full first, at %v GB/s; want %s at %v", c.name, f.full, f.rateGBs, c.full, c.gbs)
		}
		if f.moved != f.rateGBs*directPasses || f.disks != f.rateGBs/diskGBs {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
	if f := forecastOf(costs{digestGBs: 1}, 4, 100); math.Abs(f.processors-computing) > 1e-9 {
		t.Errorf("where %d workers compute all the time %v processors are busy", computing, f.processors)
	}
}

func TestCostOf(t *testing.T) {
	const good = `{"event":"link"}` + "\n" + `{"event":"bandwidth","mib_per_s":1,"remote_cost":{"cpu_seconds_per_gib":0.25},"local_cost":{"cpu_seconds_per_gib":9}}` + "\n"
	if got, err := costOf(good); err != nil || got != 0.25 {
		t.Errorf("a GiB took %v s, %v", got, err)
	}
	for _, events := range []string{"", "no event\n", `{"event":"bandwidth","mib_per_s":1}` + "\n"} {
		if got, err := costOf(events); err == nil {
			t.Errorf("%q: a GiB took %v s", events, got)
		}
	}
}

func TestPrintModel(t *testing.T) {
	var b bytes.Buffer
	if err := (costs{digestGBs: 10, chunkTaken: 10 * time.Microsecond}).printModel(&b); err != nil {
		t.Fatal(err)
	}
	if text := b.String(); strings.Count(text, " Gb/s  ") != 8 || !strings.Contains(text, "8 of 400 Gb/s") {
		t.Errorf("printed:\n%s", text)
	}
	if rate := digestRate(); rate <= 0 {
		t.Errorf("a processor digests %v GB/s", rate)
	}
}

func TestParseBusy(t *testing.T) {
	got, err := parseBusy("cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4\n")
	if err != nil || math.Abs(got-1.71) > 1e-9 {
		t.Errorf("processors were busy for %v s, %v; want 1.71", got, err)
	}
	for _, text := range []string{"", "intr 1 2\n", "cpu 1 2\n", "cpu 1 2 3 4 5 6 7 x\n"} {
		if got, err := parseBusy(text); err == nil {
			t.Errorf("%q: %v s", text, got)
		}
	}
	before, err := processorsBusy()
	if err != nil || before <= 0 {
		t.Errorf("this machine's processors were busy for %v s, %v", before, err)
	}
}

// TestFileRate: a file goes as fast as all processors together make it, but no faster
// than memory over the same wire, and begins after what every copy takes.
func TestFileRate(t *testing.T) {
	c := bedCosts{fixedSeconds: 1, fixedBusy: 0.5, memoryMiB: 100, fileMiB: 200, memoryBusy: 2.5, memoryRate: 1000, filesBusy: 4, processors: 2}
	if got, want := c.fileRate(), 200/(1+200*0.02/busyShare); math.Abs(got-want) > 1e-9 {
		t.Errorf("busy processors: %v MiB/s, want %v", got, want)
	}
	c.memoryRate = 25
	if got, want := c.fileRate(), 200/(1+200/25.0); math.Abs(got-want) > 1e-9 {
		t.Errorf("a busy wire: %v MiB/s, want %v", got, want)
	}
}
