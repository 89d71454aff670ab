package stat

import (
	"testing"
	"time"
)

// Work increases the processor time, and sleep does not.
func TestCPUGrowsWithWork(t *testing.T) {
	var c Counters
	if c.CPU() != 0 {
		t.Errorf("before the start %v", c.CPU())
	}
	c.Start(time.Now())
	from, sum := CPU(), 0
	for CPU()-from < 20*time.Millisecond {
		for i := range 100_000 {
			sum += i
		}
	}
	c.Start(time.Now()) // as another attempt does
	if got := c.CPU(); got < 20*time.Millisecond || got > CPU() {
		t.Errorf("after 20 ms of work %v, sum %d", got, sum)
	}
}

func TestMeterDividesByPayload(t *testing.T) {
	var s Sessions
	earlier, endEarlier := s.Begin("a:1")
	earlier.AddWireBytes(1 << 40) // before the measured session
	own, end := s.Begin("b:2")
	defer end()
	m := s.Meter(own)
	m.cpu = CPU() - time.Hour
	within := func(part, want time.Duration) bool { return part >= want && part < want+time.Minute }
	if part, shared := m.CPU(); shared || !within(part, time.Hour) {
		t.Errorf("nobody moved anything: %v, shared %v", part, shared)
	}
	own.AddWireBytes(100)
	if part, shared := m.CPU(); shared || !within(part, time.Hour) {
		t.Errorf("alone: %v, shared %v", part, shared)
	}
	earlier.AddWireBytes(100)
	if part, shared := m.CPU(); !shared || !within(part, 30*time.Minute) {
		t.Errorf("beside one that moved as much: %v, shared %v", part, shared)
	}
	earlier.AddWireBytes(200)
	endEarlier()
	if part, shared := m.CPU(); !shared || !within(part, 15*time.Minute) {
		t.Errorf("beside one that moved three times as much and ended: %v, shared %v", part, shared)
	}
}
