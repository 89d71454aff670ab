package xfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A copy without progress ends, though the peer sends heartbeats; one that is only slow does not.
func TestStalledCopies(t *testing.T) {
	rdmatest.BesideOthers(t)
	w := tcpWay(t)
	const stall = time.Second
	little, more := randomBytes(t, 3<<20), randomBytes(t, 10<<20)
	copies := func(t *testing.T, s *served, o xfer.Options) map[string]func() error {
		data := little
		if o.Stall > stall {
			data = more
		}
		src := filepath.Join(t.TempDir(), "f")
		write(t, src, data)
		write(t, filepath.Join(s.root, "there"), data)
		return map[string]func() error{
			"push": func() error {
				_, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "pushed", o)
				return err
			},
			"pull": func() error {
				_, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"there"}, filepath.Join(t.TempDir(), "f"), o)
				return err
			},
			"push stream": func() error {
				in := newStream()
				go in.feed(data, stall/4)
				_, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "streamed", o)
				return err
			},
			"pull stream": func() error {
				out := newStream()
				d := out.drain(stall / 32)
				_, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "there", out, o)
				out.PipeWriter.Close()
				<-d.done
				return err
			},
		}
	}
	o := w.streamOptions(t)
	o.Stall = stall
	// The slow copies take longer than this, and make progress often enough for a busy machine.
	patient := o
	patient.Stall = 8 * stall
	stuck := serve(t, w, func(c *xfer.ServerConfig) { c.Limit = xfer.NewLimiter(512) }) // a piece takes more than half an hour
	for name, run := range copies(t, stuck, o) {
		t.Run("stuck "+name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			err := run()
			if !errors.Is(err, xfer.ErrStalled) || !strings.HasPrefix(err.Error(), "no progress for 1s: ") {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took < stall || took > rdmatest.Stretch(20*stall) {
				t.Errorf("it took %v", took)
			}
		})
	}
	t.Run("slow by its own limit", func(t *testing.T) {
		t.Parallel()
		s, o := serve(t, w), o
		o.BytesPerSecond = 700 << 10 // a piece takes longer than a copy may make no progress
		for _, name := range []string{"push", "pull"} {
			if err := copies(t, s, o)[name](); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	for name, made := range map[string]string{"push": "pushed", "pull": "", "push stream": "streamed", "pull stream": ""} {
		t.Run("slow "+name, func(t *testing.T) {
			t.Parallel()
			// Each has a server of its own: copies that share a limit take turns.
			slow := serve(t, w, func(c *xfer.ServerConfig) { c.Limit = xfer.NewLimiter(1 << 20) })
			if err := copies(t, slow, patient)[name](); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(slow.root, made)); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		onlyPartials(t, stuck.root)
		for _, name := range []string{"pushed", "streamed"} {
			notPublished(t, stuck.root, name)
		}
	})
}

// A stream whose writer or reader does nothing is no progress.
func TestStalledStreams(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	write(t, filepath.Join(s.root, "f"), randomBytes(t, 3<<20))
	o := w.streamOptions(t)
	o.Stall = 500 * time.Millisecond
	if _, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), newStream(), s.ep, "new", o); !errors.Is(err, xfer.ErrStalled) {
		t.Errorf("push: %v", err)
	}
	if _, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "f", newStream(), o); !errors.Is(err, xfer.ErrStalled) {
		t.Errorf("pull: %v", err)
	}
}
