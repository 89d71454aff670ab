package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// TestSink: each stage can be the bottleneck, and the resources follow from the rate.
func TestSink(t *testing.T) {
	quick := costs{digestGBs: 20, chunkTaken: time.Microsecond}
	share := 4096.0 / (4096 + 82)
	for _, c := range []struct {
		name    string
		costs   costs
		rails   int
		gbps    float64
		slowest string
		gbs     float64
	}{
		{"one rail", quick, 1, 100, "wire", 12.5 * share},
		{"two rails", quick, 2, 400, "wire", 100 * share},
		{"the memory of one socket", quick, 1, 800, "memory", 250.0 / 3},
		{"the memory of two", quick, 8, 400, "memory", 500.0 / 3},
		{"slow digests", costs{digestGBs: 1}, 4, 100, "workers that compute", 24},
		{"slow writes", costs{digestGBs: 10}, 8, 400, "writes under way", 96 * 1.048576 / (0.1048576 + 0.5)},
	} {
		s := sinkOf(c.costs, c.rails, c.gbps)
		if s.slowest != c.slowest || math.Abs(s.rateGBs-c.gbs) > 1e-6*c.gbs {
			t.Errorf("%s: %s is slowest, at %v GB/s; want %s at %v", c.name, s.slowest, s.rateGBs, c.slowest, c.gbs)
		}
		if s.moved != s.rateGBs*directPasses || s.disks != s.rateGBs/diskGBs {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	if s := sinkOf(costs{digestGBs: 1}, 4, 100); math.Abs(s.processors-computing) > 1e-9 {
		t.Errorf("where %d workers compute all the time %v processors are busy", computing, s.processors)
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
