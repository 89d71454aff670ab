package tcp

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// slowly reads to the end of the victim's stream, at a MiB a second, and goes on
// talking to it: bytes that come to a closed socket reset it.
func (v *victim) slowly() (all []byte, err error) {
	word := append(encoded(frame{op: opSend, lengthBytes: 1}), 'x')
	part := make([]byte, 64<<10)
	for {
		n, err := v.raw.Read(part)
		all = append(all, part[:n]...)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		_, _ = v.raw.Write(word) // the victim may be gone
		time.Sleep(time.Duration(n) * time.Second / (1 << 20))
	}
}

// TestLastWordOnASlowLink: what was posted before Close arrives, and the Goodbye
// behind it, while the peer takes it, be it slowly.
func TestLastWordOnASlowLink(t *testing.T) {
	rdmatest.BesideOthers(t)
	v := newVictim(t, rdma.RemoteWrite)
	last := []byte("the last word")
	wrs := make([]rdma.WR, 0, 385)
	for range 384 {
		wrs = append(wrs, rdma.WR{Op: rdma.OpWrite, Local: v.mr, Len: victimBytes, RemoteAddr: 1 << 20, RKey: 1, Quiet: true})
	}
	wrs = append(wrs, rdma.WR{Op: rdma.OpSend, Msg: last})
	closed := make(chan error, 1)
	go func() {
		for len(wrs) > 0 {
			n, err := v.conn.Post(wrs)
			if err != nil && n == 0 {
				time.Sleep(time.Millisecond) // the queue is full
			}
			wrs = wrs[n:]
		}
		for v.next(t).Kind != rdma.Done { // the kernel has all of it
		}
		closed <- v.conn.Close()
	}()
	all, err := v.slowly()
	if err != nil {
		t.Errorf("after %d bytes: %v", len(all), err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	bye := encoded(frame{op: opGoodbye, imm: byeOrderly})
	if !bytes.HasSuffix(all, append(last, bye...)) {
		t.Errorf("of %d bytes the last ones are %q", len(all), all[max(0, len(all)-64):])
	}
}

// TestLeavingAPeerThatTakesNothing: it is not waited for.
func TestLeavingAPeerThatTakesNothing(t *testing.T) {
	rdmatest.BesideOthers(t)
	v := newVictim(t, rdma.RemoteWrite)
	wrs := make([]rdma.WR, 64)
	for i := range wrs {
		wrs[i] = rdma.WR{Op: rdma.OpWrite, Local: v.mr, Len: victimBytes, RemoteAddr: 1 << 20, RKey: 1}
	}
	done := make([]rdma.Completion, 64)
	for begun := time.Now(); time.Since(begun) < time.Second; { // fills the socket
		if _, err := v.conn.Post(wrs); err != nil {
			time.Sleep(10 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		_, _ = v.rail.Wait(ctx, done) // whatever is done makes room
		cancel()
	}
	begun := time.Now()
	if err := v.conn.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > leaveTimeout/2 {
		t.Errorf("it took %v", took)
	}
}
