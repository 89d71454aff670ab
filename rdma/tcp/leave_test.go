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

// slowReader is a peer that reads slowly.
type slowReader struct {
	v      *victim
	pause  time.Duration   // one pause, when closing is closed
	begins <-chan struct{} // or nil
	all    []byte
	// longest is the longest time in which it read nothing.
	longest time.Duration
}

// read reads to the end of the victim's stream, at one MiB a second, and keeps
// sending: bytes that arrive at a closed socket reset it.
func (r *slowReader) read() error {
	word := append(encoded(frame{op: opSend, lengthBytes: 1}), 'x')
	part := make([]byte, 64<<10)
	begun := time.Now()
	for {
		n, err := r.v.raw.Read(part)
		r.longest, begun = max(r.longest, time.Since(begun)), time.Now()
		r.all = append(r.all, part[:n]...)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		_, _ = r.v.raw.Write(word) // the victim may be gone
		time.Sleep(time.Duration(n) * time.Second / (1 << 20))
		select {
		case <-r.begins:
			time.Sleep(r.pause)
			r.begins = nil
		default:
		}
	}
}

// isHeldUp reports whether this machine delayed the peer for longer than Close
// waits: the pauses that TCP's minimum retransmission timeout causes.
func (r *slowReader) isHeldUp() bool {
	return r.longest > resends*200*time.Millisecond-leaveCheck
}

// TestLastWordOnASlowLink: the work requests posted before Close arrive, followed by the
// Goodbye, as long as the peer reads, even slowly and with pauses.
func TestLastWordOnASlowLink(t *testing.T) {
	rdmatest.BesideOthers(t)
	for name, pause := range map[string]time.Duration{"slow": 0, "with a pause": 2 * flushTimeout} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				if r := lastWord(t, pause); !r.isHeldUp() {
					return
				}
			}
			t.Skip("this machine is too busy for a peer that is only slow, run it alone: go test ./rdma/tcp -run TestLastWordOnASlowLink")
		})
	}
}

// lastWord posts more than a slow peer soon reads, and closes. It checks what
// arrives, unless this machine delayed the peer for longer than Close waits.
func lastWord(t *testing.T, pause time.Duration) *slowReader {
	v := newVictim(t, rdma.RemoteWrite)
	last := []byte("the last word")
	wrs := make([]rdma.WR, 0, 385)
	for range 384 {
		wrs = append(wrs, rdma.WR{Op: rdma.OpWrite, Local: v.mr, Len: victimBytes, RemoteAddr: 1 << 20, RKey: 1, Quiet: true})
	}
	wrs = append(wrs, rdma.WR{Op: rdma.OpSend, Msg: last})
	closing, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		for len(wrs) > 0 {
			n, err := v.conn.Post(wrs)
			if err != nil && n == 0 {
				time.Sleep(time.Millisecond) // the queue is full
			}
			wrs = wrs[n:]
		}
		for v.next(t).Kind != rdma.Done { // the kernel has accepted all of it
		}
		close(closing)
		closed <- v.conn.Close()
	}()
	r := &slowReader{v: v, pause: pause, begins: closing}
	err := r.read()
	closeErr := <-closed
	switch bye := encoded(frame{op: opGoodbye, imm: byeOrderly}); {
	case r.isHeldUp():
	case err != nil || closeErr != nil:
		t.Errorf("after %d bytes: %v, closed: %v", len(r.all), err, closeErr)
	case !bytes.HasSuffix(r.all, append(last, bye...)):
		t.Errorf("of %d bytes the last ones are %q", len(r.all), r.all[max(0, len(r.all)-64):])
	}
	return r
}

// TestLeavingAPeerThatTakesNothing: Close does not wait for it.
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
		_, _ = v.rail.Wait(ctx, done) // completions make room
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
