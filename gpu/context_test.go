//go:build linux && cgo

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func TestContextClose(t *testing.T) {
	c := useFake(t)
	if c.Device().Name != "Fake GPU 0" {
		t.Errorf("device %+v", c.Device())
	}
	mem := hostMemory(t, 4096)
	m, err := c.Alloc(1)
	s, err2 := c.NewStream()
	k, err3 := c.NewMark()
	p, err4 := c.Pin(mem)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	// In arbitrary order: Close lists the remaining objects each time.
	for _, step := range []struct {
		left  string
		close func() error
	}{
		{"marks (1), memory (1), pinned memory (1), streams (1)", m.Close},
		{"marks (1), pinned memory (1), streams (1)", k.Close},
		{"pinned memory (1), streams (1)", s.Close},
		{"pinned memory (1)", p.Close},
	} {
		if err := c.Close(); err == nil || !strings.HasSuffix(err.Error(), "in use by "+step.left) {
			t.Errorf("close with %s: %v", step.left, err)
		}
		if err := errors.Join(step.close(), step.close()); err != nil {
			t.Error(err)
		}
	}
	closes(t, "context", c)
	closes(t, "context again", c)
	_, err = c.Alloc(1)
	_, err2 = c.NewStream()
	_, err3 = c.NewMark()
	_, err4 = c.Pin(mem)
	for _, err := range []error{err, err2, err3, err4, c.FlushWrites()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("after close: %v", err)
		}
	}
}

// TestClosedObjects: closed objects return errors without calling the driver.
func TestClosedObjects(t *testing.T) {
	c := useFake(t)
	m, s := alloc(t, c, 4096), newStream(t, c)
	other := newStream(t, c)
	mark, err := c.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	host := hostMemory(t, 4096)
	closes(t, "mark", mark)
	if err := s.Record(mark); !errors.Is(err, ErrClosed) {
		t.Errorf("record a closed mark: %v", err)
	}
	if err := mark.Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("wait for a closed mark: %v", err)
	}
	closes(t, "stream", s)
	for _, err := range []error{s.ToDevice(m, 0, host), s.ToHost(host, m, 0), s.Copy(m, 0, m, 0, 1), s.Wait()} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("in a closed stream: %v", err)
		}
	}
	closes(t, "memory", m)
	_, _, err = m.DMABuf()
	for _, err := range []error{other.ToDevice(m, 0, host), other.ToHost(host, m, 0), other.Copy(m, 0, m, 0, 1), err} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("with closed memory: %v", err)
		}
	}
}

func TestFlushWrites(t *testing.T) {
	if err := useFake(t).FlushWrites(); err != nil {
		t.Error(err)
	}
	if err := useFake(t, "noflush").FlushWrites(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("where it does not work: %v", err)
	}
}

// TestOneGPUTwice: users of one GPU share the primary context, and either may close first.
func TestOneGPUTwice(t *testing.T) {
	d := openFake(t)
	first, err := d.Use(context.Background(), 0)
	second, err2 := d.Use(context.Background(), 0)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "second", second) })
	m := alloc(t, first, 4096)
	if err := newStream(t, second).Copy(m, 0, m, 2048, 1); !errors.Is(err, errOtherGPU) {
		t.Errorf("memory of another Context: %v", err)
	}
	roundTrip(t, first, 4096)
	closes(t, "memory", m)
	closes(t, "first", first)
	roundTrip(t, second, 4096)
}

func TestManyGoroutines(t *testing.T) {
	d := openFake(t, "gpus=2", "strict")
	var group errgroup.Group
	for gpu := range 2 {
		c, err := d.Use(context.Background(), gpu)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closes(t, "context", c) })
		for seed := range 6 {
			group.Go(func() error {
				for range 5 {
					if err := tryRoundTrip(c, 1<<18, uint64(seed)); err != nil {
						return fmt.Errorf("goroutine %d on GPU %d: %w", seed, gpu, err)
					}
				}
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// roundTrip copies random bytes through the GPU.
func roundTrip(t *testing.T, c *Context, n int) {
	t.Helper()
	if err := tryRoundTrip(c, n, 1); err != nil {
		t.Error(err)
	}
}

// tryRoundTrip creates and closes one object of each kind, and copies n bytes
// to the GPU, within it, and back.
func tryRoundTrip(c *Context, n int, seed uint64) (err error) {
	host, err := unix.Mmap(-1, 0, 2*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	ends := []func() error{func() error { return unix.Munmap(host) }}
	defer func() {
		for i := len(ends) - 1; i >= 0; i-- {
			err = errors.Join(err, ends[i]())
		}
	}()
	pin, err := c.Pin(host)
	if err != nil {
		return err
	}
	ends = append(ends, pin.Close)
	m, err := c.Alloc(2 * n)
	if err != nil {
		return err
	}
	ends = append(ends, m.Close)
	s, err := c.NewStream()
	if err != nil {
		return err
	}
	ends = append(ends, s.Close)
	mark, err := c.NewMark()
	if err != nil {
		return err
	}
	ends = append(ends, mark.Close)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range n {
		host[i] = byte(random.Uint32())
	}
	if err := errors.Join(s.ToDevice(m, n, host[:n]), s.Copy(m, 0, m, n, n), s.ToHost(host[n:], m, 0), s.Record(mark), mark.Wait()); err != nil {
		return err
	}
	if !bytes.Equal(host[:n], host[n:]) {
		return errors.New("other bytes came back than went")
	}
	return nil
}

// TestHandleClose: close waits for the uses that have begun, refuses new ones,
// and ends the object once for all callers.
func TestHandleClose(t *testing.T) {
	var h handle
	if err := h.use(); err != nil {
		t.Fatal(err)
	}
	ended, failed := 0, errors.New("failed")
	var closers sync.WaitGroup
	for range 3 {
		closers.Go(func() {
			if err := h.close(func() error { ended++; return failed }); !errors.Is(err, failed) {
				t.Errorf("close: %v", err)
			}
		})
	}
	for h.use() == nil { // until close has been called
		h.release()
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	h.mu.Lock()
	if ended != 0 {
		t.Error("ended in use")
	}
	h.mu.Unlock()
	h.release()
	closers.Wait()
	if ended != 1 {
		t.Errorf("ended %d times", ended)
	}
}
