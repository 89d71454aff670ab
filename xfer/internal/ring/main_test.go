//go:build linux && cgo

package ring

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/wire"
)

// TestMain builds the fake libcuda once for all tests.
func TestMain(m *testing.M) { os.Exit(withFakeCUDA(m)) }

func withFakeCUDA(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gdrcp-fake-")
	if err == nil {
		defer os.RemoveAll(dir)
		var library string
		if library, err = gputest.Build(dir); err == nil {
			err = os.Setenv(gputest.Library, library)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// lend returns a getter of a driver with the fake's GPUs, which is closed when the test
// ends. A leak then ends the test program.
func lend(t *testing.T, words ...string) GPUs {
	t.Helper()
	gputest.Use(t, words...)
	var opened *gpu.Driver
	t.Cleanup(func() {
		if opened != nil {
			if err := opened.Close(); err != nil {
				t.Errorf("close the driver: %v", err)
			}
		}
	})
	return sync.OnceValues(func() (d *gpu.Driver, err error) {
		d, err = gpu.Open()
		opened = d
		return d, err
	})
}

// reaching is a rail whose device can access the fake's GPU memory in the mode peermem.
type reaching struct{ rdma.Rail }

func (r reaching) Device() rdma.Device {
	d := r.Rail.Device()
	d.Transport = rdma.RoCE
	return d
}

func (r reaching) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	switch {
	case what.DMABufFD >= 0 && what.Mem == nil:
		return nil, fmt.Errorf("import a dma-buf: %w", rdma.ErrUnsupported)
	case what.Mem == nil:
		what = rdma.HostRegion(gputest.Reach(what.Addr, what.Len))
	}
	return r.Rail.Register(what, access)
}

// openRail opens a rail over TCP. Its completions are passed to the loopbacks until the
// test ends, when those are closed, and then the rail.
func openRail(t *testing.T, loops *Loopbacks) rdma.Rail {
	t.Helper()
	rail, err := tcp.New().Open("tcp", rdma.RailConfig{
		Conns: 1, Loopbacks: 1, SendDepth: 8, RecvDepth: 8, MsgBytes: wire.MsgBytes, WriteBytes: 4 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cs := make([]rdma.Completion, 8)
		for {
			n, err := rail.Wait(ctx, cs)
			if err != nil {
				return
			}
			for i := range cs[:n] {
				if !loops.Done(&cs[i]) {
					t.Errorf("%+v is of no loopback connection", cs[i])
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := rail.Close(); err != nil {
			t.Errorf("close the rail: %v", err)
		}
	})
	return rail
}

// placed calls Place with its own Loopbacks, and closes the ring when the test ends.
func placed(t *testing.T, wrap func(rdma.Rail) rdma.Rail, c Config) (*Ring, error) {
	t.Helper()
	c.Loops = &Loopbacks{}
	rail := openRail(t, c.Loops)
	if wrap != nil {
		rail = wrap(rail)
	}
	r, err := Place(t.Context(), rail, c)
	if r == nil {
		t.Fatalf("no ring, which nobody could close: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Loops.Close(); err != nil {
			t.Errorf("close the loopback connections: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("close the ring: %v", err)
		}
	})
	return r, err
}
