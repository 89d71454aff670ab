//go:build linux && cgo

package xfer

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// fakeGPU lends the memory of the fake's GPU. A leak of it fails the test.
func fakeGPU(t *testing.T) GPUs {
	t.Helper()
	driver, err := gpu.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil { // which reports leaks
			t.Error(err)
		}
	})
	return func() (*gpu.Driver, error) { return driver, nil }
}

// False claims of a hostile source about chunks in GPU memory end its session and publish nothing.
// The GPU is not asked to digest them.
func TestHostileSourceOfGPUSlots(t *testing.T) {
	OnHost(t)
	gputest.Use(t, "strict")
	data := make([]byte, 5000)
	part := func(slotOff, length int) wire.Extent {
		return wire.Extent{Length: int64(length), SlotOff: uint32(slotOff), Flags: wire.ExtLast}
	}
	for _, tc := range []struct {
		name      string
		fileBytes int
		say       func(ctx context.Context, p *puppet) error
	}{
		{"an extent out of line", 5000, func(ctx context.Context, p *puppet) error {
			return p.chunk(0, 0, 1, append(data, 0), part(1, 5000))
		}},
		{"a slot claimed three times over", 3 << 20, func(ctx context.Context, p *puppet) error {
			xs := []wire.Extent{part(0, 1<<20), part(0, 1<<20), part(0, 1<<20)}
			xs[0].Flags, xs[1].Flags = 0, 0
			xs[1].Off, xs[2].Off = 1<<20, 2<<20
			return p.chunk(0, 0, 1, make([]byte, 1<<20), xs...)
		}},
		{"beyond the file", 5000, func(ctx context.Context, p *puppet) error {
			return p.chunk(0, 0, 1, data, part(0, 5000), part(0, 5000))
		}},
		{"a slot never granted", 5000, func(ctx context.Context, p *puppet) error { return p.chunk(0, 1, 2, data, part(0, 5000)) }},
		{"its own memory, twice", 5000, func(ctx context.Context, p *puppet) error {
			m := Memory{GPU: 1}
			return errors.Join(p.Ctl.Send(ctx, wire.MsgMemory, m.Encode()), p.Ctl.Send(ctx, wire.MsgMemory, m.Encode()))
		}},
		{"memory that does not decode", 5000, func(ctx context.Context, p *puppet) error { return p.Ctl.Send(ctx, wire.MsgMemory, []byte{1, 9, 9}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpus := fakeGPU(t)
			root, addr, ends := hostileServer(t, func(c *ServerConfig) { c.GPUs = gpus })
			ask := func(h *wire.Hello) { h.GPU, h.Terms.Hash = uint64(wire.GPUFirst), manifest.BLAKE3 }
			err := hostileHello(t, addr, wire.ModePush, "x", ask, func(ctx context.Context, s *flow.Session) error {
				s.Memory.Asked = true
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, fileOf(tc.fileBytes)); err != nil {
					return err
				}
				if err := tc.say(ctx, p); err != nil {
					return err
				}
				for {
					if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			end := <-ends
			t.Logf("the server: %v", end.Err)
			if err == nil || !errors.Is(end.Err, ErrProtocol) {
				t.Errorf("the hostile end was not cut off: %v, the server: %v", err, end.Err)
			}
			if _, err := os.Lstat(filepath.Join(root, "x")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it was published: %v", err)
			}
		})
	}
}

// Slots in GPU memory that the device can reach are copied there, before their digest.
func TestRewrittenGPUSlots(t *testing.T) {
	library := os.Getenv("BED_VERBS_DMABUF")
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Skip("needs the bed: tests/bed/run-tests ./xfer")
	}
	if library == "" {
		t.Fatal("BED_VERBS_DMABUF names no library")
	}
	rdmatest.SampleOverDevices(t)
	t.Setenv("GDRCP_LIBIBVERBS", library)
	gputest.Use(t, "cc=8.0", "late=1")
	gpus := fakeGPU(t)
	all := hostileWays(t)
	at := slices.IndexFunc(all, func(w hostileWay) bool { return w.name == "rxe0" })
	if at < 0 {
		t.Fatal("GDRCP_TEST_RDMA does not name rxe0")
	}
	c := Client{TCP: all[at].provider, Verbs: all[at].provider, GPUs: gpus}
	all[at].rewriteSlots(t, c, Options{GPU: "0", Require: "gpudirect", Hash: manifest.BLAKE3})
}

// A hello may ask for any GPU. An impossible one is refused.
func TestHostileWishForAGPU(t *testing.T) {
	OnHost(t)
	_, addr, ends := hostileServer(t)
	for _, wish := range []struct {
		gpu  uint64
		name string
	}{
		{uint64(wire.GPUNamed), ""}, {uint64(wire.GPUNamed) + 1, ""}, {1 << 63, ""}, {1<<64 - 1, ""},
		{uint64(wire.GPUFirst), "GPU-1"}, {0, "GPU-1"}, {uint64(wire.GPUNamed) + 1, "GPU-1"},
		{uint64(wire.GPUNamed), "\x1b[31m"}, {uint64(wire.GPUNamed), "../../x"}, {uint64(wire.GPUNamed), "GPU-" + strings.Repeat("1", 8000)},
	} {
		ask := func(h *wire.Hello) { h.GPU, h.GPUName = wish.gpu, wish.name }
		err := hostileHello(t, addr, wire.ModePush, "x", ask, func(context.Context, *flow.Session) error { return nil })
		if end := <-ends; err == nil || !errors.Is(end.Err, ErrProtocol) {
			t.Errorf("GPU %d, %.20q: %v, the server: %v", wish.gpu, wish.name, err, end.Err)
		}
	}
}
