package flow

import (
	"errors"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Time is divided by the number of workers that compute in parallel, which may be smaller than the
// number of processors. The work of a single busy worker takes the whole time.
func TestTimeIsDividedByThoseThatCompute(t *testing.T) {
	for _, c := range []struct{ processors, workers, want int }{{24, 2, 2}, {24, 96, 24}, {2, 8, 2}, {2, 1, 1}} {
		s := Session{Session: &link.Session{}, Tally: &stat.Counters{}, Processors: c.processors}
		s.Workers.Store(int32(c.workers))
		s.Spent(stat.Disk, stat.Now()-int64(time.Hour)*int64(c.want))
		if got := s.Tally.Spent()[stat.Disk].Round(time.Minute); got != time.Hour {
			t.Errorf("%d workers on %d processors: %v, want an hour", c.workers, c.processors, got)
		}
		s.Tally = &stat.Counters{}
		f := Receiver{Session: &s, counted: stat.Now() - int64(time.Hour)}
		f.countIdleLocked() // no slot is busy
		if got := s.Tally.Spent()[stat.Wire].Round(time.Minute); got != time.Hour {
			t.Errorf("%d workers on %d processors were idle for %v, want an hour", c.workers, c.processors, got)
		}
	}
}

// A session that asks for a GPU has the GPU's number of workers, or that of host memory if it gets
// no GPU.
func TestWorkersOfTheRingThatWasMade(t *testing.T) {
	s := Session{Session: &link.Session{Link: &link.Link{Ring: &ring.Ring{}}}, Terms: wire.Terms{Slots: 16, PieceBytes: 1 << 20}}
	if got, want := s.RingWorkers(), min(16, chunker.DiskWorkers()); got != want {
		t.Errorf("%d workers in host memory, want %d", got, want)
	}
	s.Link.Ring.Device = &ring.Device{Workers: make([]*ring.Worker, 4)}
	if got := s.RingWorkers(); got != 4 {
		t.Errorf("%d workers of a GPU, want 4", got)
	}
	s.Terms.Slots = 1
	if got := s.RingWorkers(); got != 1 {
		t.Errorf("%d workers for one slot in a GPU, want 1", got)
	}
}

// A peer sends its cost once, if it was asked, and within bounds.
func TestHeardCost(t *testing.T) {
	body := (&wire.Cost{CPU: 5}).Encode()
	var unasked Session
	if err := unasked.heardCost(body); !errors.Is(err, wire.ErrProtocol) || unasked.Costs.Theirs.Load() != nil {
		t.Errorf("unasked: %v", err)
	}
	asked := Session{Session: &link.Session{}, Costs: Costs{Asked: true}}
	if err := asked.heardCost([]byte{1}); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
	if err := asked.heardCost(body); err != nil || asked.Costs.Theirs.Load().CPU != 5 {
		t.Errorf("asked: %v, %+v", err, asked.Costs.Theirs.Load())
	}
	if err := asked.heardCost(body); !errors.Is(err, wire.ErrProtocol) {
		t.Errorf("again: %v", err)
	}
}
