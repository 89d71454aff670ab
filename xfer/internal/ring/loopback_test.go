//go:build linux && cgo

package ring

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"gdrcp/rdma"
)

// An operation over a rail's connection to itself returns when it completes, when the
// connection ends, or when its context ends.
func TestLoopbacks(t *testing.T) {
	var loops Loopbacks
	rail := openRail(t, &loops)
	mem := make([]byte, 8192)
	copy(mem[4096:], "from here to there")
	mr, err := rail.Register(rdma.HostRegion(mem), rdma.LocalWrite|rdma.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	l, err := loops.open(t.Context(), rail)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(loops.Close(), mr.Close()); err != nil {
			t.Error(err)
		}
	})
	read := rdma.WR{Op: rdma.OpRead, Local: mr, Len: 18, RemoteAddr: mr.Addr() + 4096, RKey: mr.RKey()}
	for i := range 3 {
		mem[4096] = 'F' + byte(i)
		if err := l.do(t.Context(), read); err != nil || !bytes.Equal(mem[:18], mem[4096:][:18]) {
			t.Fatalf("%q, %v", mem[:18], err)
		}
	}
	if !loops.Has(l.conn) || loops.Has(nil) || loops.Done(&rdma.Completion{Kind: rdma.Done, ID: 1}) {
		t.Error("a completion of another connection is taken for one of these")
	}
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	// The completion may arrive first.
	for err = nil; err == nil; {
		err = l.do(ctx, read)
	}
	if !errors.Is(err, stopped) {
		t.Errorf("it ended with %v", err)
	}
	if err := loops.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.do(t.Context(), read); err == nil {
		t.Error("a closed connection carries something out")
	}
	if !loops.Has(l.conn) {
		t.Error("a connection is not known any more when it is closed")
	}
}
