//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// hangs starts a kernel that never ends, in a Context with the given life.
func hangs(t *testing.T, life context.Context) (*Driver, *Context, *Stream, *Memory) {
	t.Helper()
	d := openFake(t, "hang", "gpus=2", "late=5")
	c, err := d.Use(life, 0)
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
	if err := s.launch(k, 1, 1, 0, m.Addr(), 1, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Objects that hang are abandoned, and only the driver reports that.
		closes(t, "stream", s)
		if err := mod.unload(); err != nil {
			t.Error(err)
		}
		closes(t, "memory", m)
		closes(t, "context", c)
	})
	return d, c, s, m
}

// Waits for a hung GPU end when the Context's life ends, and after a timeout in
// any case; then the driver refuses all further use.
func TestHungGPU(t *testing.T) {
	life, end := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	d, _, s, _ := hangs(t, life)
	time.AfterFunc(50*time.Millisecond, func() { end(enough) })
	start := time.Now()
	if err := s.Wait(); !errors.Is(err, enough) {
		t.Errorf("the wait of who has gone: %v", err)
	}
	if took := time.Since(start); took > 3*time.Second {
		t.Errorf("it went after %v", took)
	}
	if err := d.Lost(); err != nil {
		t.Errorf("lost because somebody went: %v", err)
	}
	if err := s.wait(context.Background(), 100*time.Millisecond); !isCode(err, 600) || !strings.Contains(err.Error(), "the GPU hangs") {
		t.Errorf("a wait without an end: %v", err)
	}
	wantLost(t, d, d.Lost())
}

// A user of another GPU can meanwhile finish its work there.
func TestHungGPUIsNoOther(t *testing.T) {
	d, _, s, _ := hangs(t, t.Context())
	c, err := d.Use(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, "context", c)
	other, err := c.NewStream()
	m, err2 := c.Alloc(4096)
	mark, err3 := c.NewMark()
	host := make([]byte, 4096)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer closes(t, "stream", other)
	defer closes(t, "memory", m)
	defer closes(t, "mark", mark)
	if err := s.wait(t.Context(), 100*time.Millisecond); !isCode(err, 600) {
		t.Fatalf("a wait for what hangs: %v", err)
	}
	for range 3 {
		if err := errors.Join(other.ToDevice(m, 0, host), other.Record(mark), mark.Wait()); err != nil {
			t.Errorf("another GPU: %v", err)
		}
	}
}

// Calls that wait for all work of a GPU, such as freeing memory, block nobody
// either: what they would free is abandoned. A wait for another reason reports
// that reason and its limit.
func TestHungGPUHoldsNoClose(t *testing.T) {
	d, _, s, m := hangs(t, t.Context())
	start := time.Now()
	closes(t, "memory", m)
	if took := time.Since(start); took > closePatience+3*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := s.Wait(); err == nil || !strings.Contains(err.Error(), "free memory on GPU 0: the GPU hangs, no answer within 5s") {
		t.Errorf("a wait after that: %v", err)
	}
	wantLost(t, d, d.Lost())
}

// Freeing memory waits for work that was queued before, and not for work that
// others queue meanwhile.
func TestFreeingWaitsForNoLaterWork(t *testing.T) {
	d := openFake(t, "late=20")
	c, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, "context", c)
	s, err := c.NewStream()
	m, err2 := c.Alloc(4096)
	freed, err3 := c.Alloc(4096)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	defer closes(t, "memory", m)
	defer closes(t, "stream", s)
	host, stop, ended := make([]byte, 4096), make(chan struct{}), make(chan error)
	begun := make(chan struct{})
	go func() {
		for n := 0; ; n++ { // faster than the GPU does it
			select {
			case <-stop:
				ended <- nil
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := s.ToDevice(m, 0, host); err != nil {
				ended <- err
				return
			}
			if n == 2 {
				close(begun)
			}
		}
	}()
	<-begun
	closes(t, "memory", freed)
	close(stop)
	if err := errors.Join(<-ended, d.Lost(), s.Drain()); err != nil {
		t.Error(err)
	}
}

// If creating the context of one GPU takes long, users of another GPU do not wait.
func TestGPUsDoNotQueue(t *testing.T) {
	g := newGate(t)
	d := openFake(t, "gpus=2", "opengate="+g.path)
	opened := make(chan error, 1)
	go func() {
		c, err := d.Use(context.Background(), 0)
		if err == nil {
			err = c.Close()
		}
		opened <- err
	}()
	g.reached()
	c, err := d.Use(context.Background(), 1) // otherwise it waits for ever
	if err != nil {
		t.Fatal(err)
	}
	closes(t, "context", c)
	g.open()
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// GPUs are numbered as nvidia-smi does, unless the user selects another order.
func TestGPUsAreCountedByBus(t *testing.T) {
	for order, want := range map[string]string{"": "0000:1b:00.0", "FASTEST_FIRST": "0000:2b:00.0"} {
		t.Run("order "+order, func(t *testing.T) {
			t.Setenv("CUDA_DEVICE_ORDER", order)
			if order == "" {
				os.Unsetenv("CUDA_DEVICE_ORDER")
			}
			if got := openFake(t, "mixed", "gpus=2").Devices()[0].PCIAddress; got != want {
				t.Errorf("GPU 0 is at %s, want %s", got, want)
			}
		})
	}
}

// Slow work is waited for.
func TestSlowIsNotHung(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hangs")
	c := useFake(t, "late=300", "hangfile="+file)
	roundTrip(t, c, 4096)
	if _, err := os.Stat(file); err == nil || c.Lost() != nil {
		t.Errorf("%v", c.Lost())
	}
}
