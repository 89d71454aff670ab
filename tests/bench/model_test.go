package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// TestSink: each stage can be the one that is full first, and what a copy takes follows from
// its rate.
func TestSink(t *testing.T) {
	quick := costs{digestGBs: 20, chunkTaken: time.Microsecond}
	share := 4096.0 / (4096 + 82)
	for _, c := range []struct {
		name  string
		costs costs
		rails int
		gbps  float64
		full  string
		gbs   float64
	}{
		{"one rail", quick, 1, 100, "wire", 12.5 * share},
		{"two rails", quick, 2, 400, "wire", 100 * share},
		{"the memory of one socket", quick, 1, 800, "memory", 250.0 / 3},
		{"the memory of two", quick, 8, 400, "memory", 500.0 / 3},
		{"slow digests", costs{digestGBs: 1}, 4, 100, "workers that compute", 24},
		{"slow writes", costs{digestGBs: 10}, 8, 400, "writes under way", 96 * 1.048576 / (0.1048576 + 0.5)},
	} {
		s := sinkOf(c.costs, c.rails, c.gbps)
		if s.full != c.full || math.Abs(s.rateGBs-c.gbs) > 1e-6*c.gbs {
			t.Errorf("%s: %s is full first, at %v GB/s; want %s at %v", c.name, s.full, s.rateGBs, c.full, c.gbs)
		}
		if s.moved != s.rateGBs*directPasses || s.disks != s.rateGBs/diskGBs {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	if s := sinkOf(costs{digestGBs: 1}, 4, 100); math.Abs(s.processors-computing) > 1e-9 {
		t.Errorf("where %d workers compute all the time %v processors are busy", computing, s.processors)
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
	if rate := digestRate(8, 2); rate <= 0 {
		t.Errorf("a processor digests %v MiB/s", rate)
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
