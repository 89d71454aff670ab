package xfer_test

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func TestServerTotals(t *testing.T) { over(t, testServerTotals) }

// The work of a server's sessions is counted while they run, and in the sum with that of ended
// ones.
func testServerTotals(t *testing.T, w way) {
	s, src := serve(t, w), filepath.Join(t.TempDir(), "file")
	data := randomBytes(t, 4<<20)
	write(t, src, data)
	o := w.options(t)
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "first", o); err != nil {
		t.Fatal(err)
	}
	s.lastEnd(t, 1)
	size := int64(len(data))
	if got := s.server.Totals(); got.Ended != 1 || len(got.Running) != 0 || got.Sum.Bytes != size || got.Sum.Files != 1 || got.Sum.TotalBytes != size || !got.Sum.TotalKnown {
		t.Errorf("after a push of %d bytes %+v", size, got)
	}
	o = w.streamOptions(t)
	o.Slots = 2
	// The copy cannot end before its reader continues.
	done, out, looked := make(chan error, 1), newStream(), make(chan struct{})
	go func() {
		_, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "first", out, o)
		out.PipeWriter.Close()
		done <- err
	}()
	go func() {
		_, _ = io.CopyN(io.Discard, out.PipeReader, size/2)
		<-looked
		_, _ = io.Copy(io.Discard, out.PipeReader)
	}()
	var during xfer.Totals
	for {
		select {
		case err := <-done:
			t.Fatal(errors.Join(err, errors.New("the copy was over before any of it was counted")))
		case <-time.After(time.Millisecond):
		}
		if during = s.server.Totals(); len(during.Running) == 1 && during.Running[0].Bytes > 0 {
			break
		}
	}
	close(looked)
	if run := during.Running[0]; run.Peer == "" || run.Bytes > size || during.Sum.Bytes != size+run.Bytes || during.Ended != 1 {
		t.Errorf("during a pull %+v", during)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.lastEnd(t, 2)
	if got := s.server.Totals(); got.Ended != 2 || len(got.Running) != 0 || got.Sum.Bytes != 2*size || got.Sum.Files != 2 {
		t.Errorf("after a push and a pull of %d bytes each %+v", size, got)
	}
}
