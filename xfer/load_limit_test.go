package xfer_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A copy under a limit takes the expected time, whichever end has the limit; on a busy machine it
// may take more.
func TestCopiesUnderALimit(t *testing.T) {
	rdmatest.BesideOthers(t)
	const rate, fileBytes = 4 << 20, 8 << 20
	w := tcpWay(t)
	for _, tc := range []struct {
		name   string
		push   bool
		client int64
		server int64
	}{
		{"push", true, rate, 0}, {"pull", false, rate, 0},
		{"push, the server's", true, 0, rate}, {"pull, the server's", false, 0, rate},
		{"push, the lower one", true, 100 * rate, rate},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, w, func(c *xfer.ServerConfig) { c.Limit = xfer.NewLimiter(tc.server) })
			from, to := t.TempDir(), s.root
			if !tc.push {
				from, to = to, from
			}
			write(t, filepath.Join(from, "f"), randomBytes(t, fileBytes))
			o := w.options(t)
			o.BytesPerSecond = tc.client
			slots := 0
			o.Report = func(e xfer.Event) {
				if e.Kind == xfer.EventConnected {
					slots = e.Link.Slots
				}
			}
			start := time.Now()
			var err error
			if tc.push {
				_, err = w.client(rdmatest.Faults{}).Push(t.Context(), []string{filepath.Join(from, "f")}, s.ep, "f", o)
			} else {
				_, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"f"}, filepath.Join(to, "f"), o)
			}
			took, want := time.Since(start), time.Second*fileBytes/rate
			if err != nil || took < want*9/10 || took > rdmatest.Stretch(want) {
				t.Errorf("%d bytes at %d a second took %v: %v", fileBytes, rate, took, err)
			}
			// All slots would be filled before the first one may go.
			if most := rate / xfer.DefaultChunkBytes; slots > most {
				t.Errorf("%d slots, want at most a second's, which are %d", slots, most)
			}
			if st, err := os.Stat(filepath.Join(to, "f")); err != nil || st.Size() != fileBytes {
				t.Errorf("the copy: %v %v", st, err)
			}
		})
	}
}

// All sessions of a server are under its limit together.
func TestSessionsShareALimit(t *testing.T) {
	rdmatest.BesideOthers(t)
	const rate, fileBytes = 4 << 20, 4 << 20
	w := tcpWay(t)
	s := serve(t, w, func(c *xfer.ServerConfig) { c.Limit = xfer.NewLimiter(rate) })
	write(t, filepath.Join(s.root, "f"), randomBytes(t, fileBytes))
	start := time.Now()
	var g sync.WaitGroup
	for range 2 {
		g.Go(func() {
			if _, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"f"}, filepath.Join(t.TempDir(), "f"), w.options(t)); err != nil {
				t.Error(err)
			}
		})
	}
	g.Wait()
	if took, want := time.Since(start), 2*time.Second*fileBytes/rate; took < want*9/10 || took > rdmatest.Stretch(want) {
		t.Errorf("two copies of %d bytes at %d a second took %v", fileBytes, rate, took)
	}
}
