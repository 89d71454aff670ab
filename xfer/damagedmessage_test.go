package xfer_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A control message that arrives damaged costs only its connection: another rail takes over, or the
// next attempt.
func TestDamagedMessage(t *testing.T) {
	t.Parallel()
	for _, push := range []bool{true, false} {
		for _, atServer := range []bool{true, false} {
			for _, rails := range []int{1, 2} {
				t.Run(fmt.Sprintf("push %v, at the server %v, %d rails", push, atServer, rails), func(t *testing.T) {
					t.Parallel()
					damageMessage(t, push, atServer, rails)
				})
			}
		}
	}
}

// damageMessage repeats a copy until it succeeds, and damages one message on the way. The server or
// the client sends it.
func damageMessage(t *testing.T, push, atServer bool, rails int) {
	w := tcpWay(t)
	var armed, damaged atomic.Bool
	f := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
		if p.WR.Op != rdma.OpSend || !armed.Load() || damaged.Swap(true) {
			return 0, false
		}
		return len(p.WR.Msg) - 1, true
	}}
	clientFaults := f
	if atServer {
		w.provider, clientFaults = rdmatest.Faulty(w.provider, f), rdmatest.Faults{}
	}
	s, o := twoRails(t, w)
	s.ep.Addrs = s.ep.Addrs[:rails]
	from, to := t.TempDir(), filepath.Join(s.root, "there")
	if !push {
		from, to = filepath.Join(s.root, "here"), filepath.Join(t.TempDir(), "there")
	}
	write(t, filepath.Join(from, "a"), randomBytes(t, 100))
	write(t, filepath.Join(from, "file"), randomBytes(t, 48<<20))
	o.Tries, o.Tally = xfer.NewTries(), new(xfer.Tally)
	o.Report = func(e xfer.Event) {
		if e.Kind == xfer.EventFile {
			armed.Store(true)
		}
	}
	client := w.client(clientFaults)
	for attempt := 0; ; attempt++ {
		var sum *xfer.Summary
		var err error
		if push {
			sum, err = client.Push(t.Context(), []string{from}, s.ep, "there", o)
		} else {
			sum, err = client.Pull(t.Context(), s.ep, []string{"here"}, to, o)
		}
		if err == nil {
			if !sum.Verified || !damaged.Load() {
				t.Errorf("verified %v, damaged %v", sum.Verified, damaged.Load())
			}
			break
		}
		if attempt == 1 || !o.Tries.MayGoOn(err) {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
		t.Logf("attempt %d: %v", attempt, err)
		o.Tries.Again(o.Tally)
	}
	sameTree(t, from, to)
}
