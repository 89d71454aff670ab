//go:build linux && cgo

package gpu

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func fill(mem []byte, value byte) []byte {
	for i := range mem {
		mem[i] = value
	}
	return mem
}

// TestOrder queues more than has run when the host checks.
func TestOrder(t *testing.T) {
	c := useFake(t, "late=20", "strict")
	s, m := newStream(t, c), alloc(t, c, 4096)
	ones, twos, out := fill(pinned(t, c, 4096), 1), fill(pinned(t, c, 4096), 2), pinned(t, c, 8192)
	began := time.Now()
	err := errors.Join(
		s.ToDevice(m, 0, ones),
		s.ToHost(out[:4096], m, 0),
		s.ToDevice(m, 100, twos[:50]),
		s.Copy(m, 200, m, 100, 50),
		s.ToHost(out[4096:], m, 0),
	)
	if err != nil {
		t.Fatal(err)
	}
	if done := out[0] != 0; done && time.Since(began) < 40*time.Millisecond {
		t.Error("the second copy was done before two took their time")
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Clone(ones)
	copy(want[100:], twos[:50])
	copy(want[200:], twos[:50])
	if !bytes.Equal(out[:4096], ones) || !bytes.Equal(out[4096:], want) {
		t.Error("the work was not done in order")
	}
}

func TestMark(t *testing.T) {
	c := useFake(t, "late=40")
	s, m := newStream(t, c), alloc(t, c, 4096)
	mark, err := c.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "mark", mark) })
	if err := mark.Wait(); err != nil {
		t.Errorf("wait for what was not recorded: %v", err)
	}
	host := fill(pinned(t, c, 4096), 7)
	out := pinned(t, c, 8192)
	began := time.Now()
	err = errors.Join(
		s.ToDevice(m, 0, host),
		s.ToHost(out[:4096], m, 0),
		s.Record(mark),
		s.ToHost(out[4096:], m, 0),
		mark.Wait(),
	)
	if err != nil {
		t.Fatal(err)
	}
	if out[0] != 7 {
		t.Error("the mark was there before the work before it")
	}
	if done := out[4096] != 0; done && time.Since(began) < 4*40*time.Millisecond {
		t.Error("the copy behind the mark was done before four took their time")
	}
	if took := time.Since(began); took < 3*40*time.Millisecond {
		t.Errorf("the mark waited for %v only", took)
	}
	if err := errors.Join(s.Record(mark), mark.Wait()); err != nil {
		t.Fatal(err)
	}
	if out[4096] != 7 {
		t.Error("recorded again, the mark stands where it stood")
	}
}

func TestBounds(t *testing.T) {
	c := useFake(t)
	s, m, host := newStream(t, c), alloc(t, c, 100), hostMemory(t, 4096)
	for _, tt := range []struct {
		offset, n int
		ok        bool
	}{
		{0, 100, true}, {99, 1, true}, {100, 0, true}, {0, 0, true},
		{0, 101, false}, {100, 1, false}, {101, 0, false}, {-1, 1, false}, {math.MaxInt, 1, false}, {1, 100, false},
	} {
		errs := map[string]error{
			"to device": s.ToDevice(m, tt.offset, host[:tt.n]),
			"to host":   s.ToHost(host[:tt.n], m, tt.offset),
			"copy from": s.Copy(m, 0, m, tt.offset, tt.n),
			"copy to":   s.Copy(m, tt.offset, m, 0, tt.n),
		}
		for name, err := range errs {
			if (err == nil) != tt.ok {
				t.Errorf("%s %d bytes at %d: %v", name, tt.n, tt.offset, err)
			}
			var e *Error
			if errors.As(err, &e) {
				t.Errorf("%s %d bytes at %d reached the driver: %v", name, tt.n, tt.offset, err)
			}
		}
	}
	if err := s.Copy(m, 0, m, 0, -1); err == nil {
		t.Error("copied -1 bytes")
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

func TestOtherGPU(t *testing.T) {
	d := openFake(t, "gpus=2")
	one, err := d.Use(context.Background(), 0)
	two, err2 := d.Use(context.Background(), 1)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "one", one); closes(t, "two", two) })
	s, m, own := newStream(t, one), alloc(t, two, 4096), alloc(t, one, 4096)
	host := hostMemory(t, 4096)
	mark, err := two.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "mark", mark) })
	for _, err := range []error{
		s.ToDevice(m, 0, host), s.ToHost(host, m, 0), s.Copy(m, 0, own, 0, 1), s.Copy(own, 0, m, 0, 1), s.Record(mark),
	} {
		if !errors.Is(err, errOtherGPU) {
			t.Errorf("with what is another GPU's: %v", err)
		}
	}
}

// TestNotPinned: the fake detects it in its strict mode, and only then.
func TestNotPinned(t *testing.T) {
	roundTripUnpinned := func(c *Context) error {
		s, m, host := newStream(t, c), alloc(t, c, 4096), hostMemory(t, 4096)
		return errors.Join(s.ToDevice(m, 0, host), s.Wait())
	}
	if err := roundTripUnpinned(useFake(t)); err != nil {
		t.Error(err)
	}
	if err := roundTripUnpinned(useFake(t, "strict")); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED (713)") {
		t.Errorf("strict: %v", err)
	}
}

// TestBadKernel: an error of a running kernel is returned by the next wait, and
// then the process can use no GPU.
func TestBadKernel(t *testing.T) {
	for mode, tt := range map[string]struct {
		offset uint64
		code   int
	}{
		"badkernel":     {0, 719},
		"badkernel=810": {0, 810}, // on no list: the wait reports the work's error, not its own
		"badkernel=999": {0, 999},
		"":              {1 << 40, 700}, // an invalid address
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			d := openFake(t, mode, "gpus=2")
			told := make(chan error, 1)
			d.OnLost(func(err error) { told <- err })
			c, err := d.Use(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			s, err := c.NewStream()
			m, err2 := c.Alloc(4096)
			mod, err3 := c.loadModule([]byte(fillModule))
			if err := errors.Join(err, err2, err3); err != nil {
				t.Fatal(err)
			}
			k, err := mod.kernel("fake_fill")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.launch(k, 1, 1, 0, m.Addr()+tt.offset, 1, 1); err != nil {
				t.Fatalf("launch: %v", err)
			}
			if err := s.Wait(); !isCode(err, tt.code) {
				t.Errorf("wait: %v", err)
			}
			if _, err := c.Alloc(1); !isCode(err, tt.code) {
				t.Errorf("allocate afterwards: %v", err)
			}
			for _, close := range []func() error{m.Close, s.Close, mod.unload, c.Close} {
				if err := close(); err != nil {
					t.Errorf("close afterwards: %v", err)
				}
			}
			wantLost(t, d, <-told)
		})
	}
}

// wantLost checks that a driver with two GPUs refuses all further use, and reports why.
func wantLost(t *testing.T, d *Driver, told error) {
	t.Helper()
	later := make(chan error, 1)
	d.OnLost(func(err error) { later <- err })
	_, err := d.Use(context.Background(), 1)
	for what, err := range map[string]error{"told": told, "told later": <-later, "asked": d.Lost(), "another GPU": err} {
		var probe *ProbeError
		if !errors.As(err, &probe) || probe.Reason != Lost || probe.Hint == "" || !strings.Contains(probe.Detail, "CUDA_ERROR_") && !strings.Contains(probe.Detail, "(810)") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, g := range d.Devices() {
		if !strings.Contains(g.Problem, "started again") {
			t.Errorf("GPU %d has the problem %q", g.Index, g.Problem)
		}
	}
}

// Errors of a single call do not affect the driver.
func TestOtherErrorsLoseNothing(t *testing.T) {
	d := openFake(t, "badlaunch", "noload=999")
	c, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", c) })
	if _, err := c.NewHasher(1, 100); !isCode(err, 999) {
		t.Errorf("a module that does not load: %v", err)
	}
	roundTrip(t, c, 4096)
	if err := d.Lost(); err != nil {
		t.Error(err)
	}
}

func TestCloseWhileWaiting(t *testing.T) {
	c := useFake(t, "late=50")
	s, m := newStream(t, c), alloc(t, c, 4096)
	if err := s.ToDevice(m, 0, pinned(t, c, 4096)); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- s.Wait() }()
	time.Sleep(10 * time.Millisecond)
	closes(t, "stream", s)
	select {
	case err := <-waited:
		if err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("the wait did not end")
	}
	// Queued work is executed although nobody waits; Memory.Close does.
	closes(t, "memory", m)
}

func TestCopyAllocatesNothing(t *testing.T) {
	c := useFake(t)
	s, m, host := newStream(t, c), alloc(t, c, 8192), pinned(t, c, 4096)
	mark, err := c.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "mark", mark) })
	n := testing.AllocsPerRun(20, func() {
		if err := errors.Join(s.ToDevice(m, 0, host), s.Copy(m, 4096, m, 0, 4096), s.ToHost(host, m, 4096), s.Record(mark), mark.Wait(), s.Wait()); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%g allocations", n)
	}
}
