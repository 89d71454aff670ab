package main

import (
	"testing"
)

// TestLateCosts: each cost comes from what measured it.
func TestLateCosts(t *testing.T) {
	values := map[string][]float64{
		"dd to it": {10}, "dd from it": {20}, "digests": {1000}, "little in memory": {0.5}, "little to it": {1.2}, "sync": {0.3},
	}
	got := lateCostsOf(values, busyTime{"dd to it": {0.6}, "dd from it": {0.3}}, 6)
	want := lateCosts{write: 0.1, read: 0.05, writeBusy: 0.1, readBusy: 0.05, digestBusy: 0.001, startMemory: 0.5, startDisk: 1.2, sync: 0.3 - 0.1}
	for name, c := range map[string][2]float64{
		"write": {got.write, want.write}, "read": {got.read, want.read}, "writeBusy": {got.writeBusy, want.writeBusy}, "readBusy": {got.readBusy, want.readBusy},
		"digestBusy": {got.digestBusy, want.digestBusy}, "startMemory": {got.startMemory, want.startMemory}, "startDisk": {got.startDisk, want.startDisk}, "sync": {got.sync, want.sync},
	} {
		if !near(c[0], c[1]) {
			t.Errorf("%s is %v, want %v", name, c[0], c[1])
		}
	}
}

// TestLaterCosts: of a disk that answers later what the processors do stays the same.
func TestLaterCosts(t *testing.T) {
	c := lateCosts{write: 0.1, writeBusy: 0.01, digestBusy: 0.001, startMemory: 0.1, startDisk: 1, sync: 0.2}
	c.follow(map[string][]float64{"little in memory": {0.5}, "dd to it": {2}, "little to it": {3}, "sync": {1.25}})
	if want := (lateCosts{write: 0.5, writeBusy: 0.01, digestBusy: 0.001, startMemory: 0.5, startDisk: 3, sync: 0.75}); c != want {
		t.Errorf("costs %+v, want %+v", c, want)
	}
}

// TestLateForecasts: as many requests as are under way, the syncs, and the marks.
func TestLateForecasts(t *testing.T) {
	c := lateCosts{write: 0.1, read: 0.1, startMemory: 0.5, startDisk: 1.2, sync: 0.2}
	for _, f := range []struct {
		name    string
		costs   copyCosts
		full    string
		seconds float64
	}{
		{"from it", c.from(800), "disk reads", 0.5 + 10},
		// 16 MiB are in startDisk. Marks are at 2 s and, 0.4 + 8 s later, not within 10 s.
		{"to it", c.to(800), "disk writes", 1.2 - 0.2 + 10 + 0.2},
		{"to it, with a second mark", c.to(880), "disk writes", 1.2 - 0.2 + 11 + 0.4},
		{"to it, before the first mark", c.to(80), "disk writes", 1.2 - 0.2 + 1},
		{"16 at once, without marks", c.steadyTo(800, 16), "disk writes", 1.2 - 0.1 + 5},
	} {
		got := f.costs.forecast()
		if got.full.name != f.full || !near(got.seconds, f.seconds) {
			t.Errorf("%s: %s, %v s; want %s, %v s", f.name, got.full.name, got.seconds, f.full, f.seconds)
		}
	}
	c.read = 0.2
	if got := c.fromTo(800).forecast(); got.full.name != "disk reads" {
		t.Errorf("where reads take twice as long %s is full", got.full.name)
	}
	c.writeBusy = 1
	if got := c.to(800).forecast(); got.full.name != "processors" {
		t.Errorf("where a MiB keeps a processor busy for a second %s is full", got.full.name)
	}
}
