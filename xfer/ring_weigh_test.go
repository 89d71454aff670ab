//go:build linux && cgo

package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// nic is a provider of rails whose device is at a PCI address and reaches the memory
// of the fake's GPUs in the mode peermem, as fast as it is told to. It can dial only.
type nic struct {
	rdma.Provider
	name, at string
	// slow is how long one of the long transfers takes that are from or to a GPU, and
	// seen how many there were.
	slow time.Duration
	seen atomic.Int64
}

func (n *nic) Name() string { return n.name }

func (n *nic) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	rail, err := n.Provider.Open(device, cfg)
	if err != nil {
		return nil, err
	}
	return &nicRail{Rail: rail, nic: n}, nil
}

type nicRail struct {
	rdma.Rail
	nic *nic

	mu    sync.Mutex
	slots rdma.MR // in a GPU
	loop  *nicLoop
}

func (r *nicRail) Device() rdma.Device {
	d := r.Rail.Device()
	d.Transport, d.PCIAddress = rdma.RoCE, r.nic.at
	return d
}

func (r *nicRail) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if what.Mem != nil {
		return r.Rail.Register(what, access)
	}
	mr, err := r.Rail.Register(rdma.HostRegion(gputest.Reach(what.Addr, what.Len)), access)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots = mr
	return mr, err
}

func (r *nicRail) Loopback(ctx context.Context) (rdma.Conn, error) {
	c, err := r.Rail.Loopback(ctx)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loop = &nicLoop{c, r}
	return r.loop, nil
}

func (r *nicRail) Wait(ctx context.Context, all []rdma.Completion) (int, error) {
	n, err := r.Rail.Wait(ctx, all)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range all[:n] {
		if r.loop != nil && all[i].Conn == r.loop.Conn {
			all[i].Conn = r.loop
		}
	}
	return n, err
}

// nicLoop is the rail's connection to itself.
type nicLoop struct {
	rdma.Conn
	rail *nicRail
}

func (c *nicLoop) Post(wrs []rdma.WR) (int, error) {
	c.rail.mu.Lock()
	slots := c.rail.slots
	c.rail.mu.Unlock()
	for i := range wrs {
		wr := &wrs[i]
		if wr.Len >= 1<<20 && (wr.Local == slots || wr.RKey == slots.RKey()) {
			c.rail.nic.seen.Add(1)
			time.Sleep(c.rail.nic.slow)
		}
	}
	return c.Conn.Post(wrs)
}

// weighed is a copy by a client with its slots in a GPU, and what comes of it.
type weighed struct {
	nicPath string // PCI devices above the NIC
	slow    time.Duration
	copies  string // a word for the GPU's
	require string
	faults  rdmatest.Faults
	isFar   bool // so that it is weighed
	rung    xfer.Rung
	why     string
}

// Where the way between device and GPU leads through the processor it is taken only
// if it is no slower than staging. What takes its time here is far slower than a
// machine that is busy.
func TestFarGPUsAreWeighed(t *testing.T) {
	const (
		besideGPU, sameNode, otherNode = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", "pci0000:00/0000:00:03.0", "pci0000:80/0000:80:02.0"
		much                           = 120 * time.Millisecond
		noDMABuf                       = `^dma-buf: [^;]*not supported[^;]*`
		speeds                         = `; peermem: \d+ MiB/s over (PHB|SYS), staged \d+ MiB/s$`
	)
	for name, tc := range map[string]weighed{
		"far and slow":             {nicPath: otherNode, slow: much, isFar: true, rung: xfer.RungStaged, why: noDMABuf + speeds},
		"far and fast":             {nicPath: otherNode, copies: "slowcopy=120", isFar: true, rung: xfer.RungPeermem, why: noDMABuf + speeds},
		"by the processor, slow":   {nicPath: sameNode, slow: much, isFar: true, rung: xfer.RungStaged, why: noDMABuf + speeds},
		"by the processor, fast":   {nicPath: sameNode, copies: "slowcopy=120", isFar: true, rung: xfer.RungPeermem, why: noDMABuf + speeds},
		"near, whatever its speed": {nicPath: besideGPU, slow: much, rung: xfer.RungPeermem, why: noDMABuf + `$`},
		"required":                 {nicPath: otherNode, slow: much, require: "gpudirect", rung: xfer.RungPeermem, why: noDMABuf + `$`},
		"no memory to stage in": {nicPath: otherNode, slow: much, rung: xfer.RungPeermem, faults: rdmatest.Faults{
			Register: func(r rdma.Region, _ rdma.Access) error {
				if r.Mem != nil && r.Len > 16<<20 {
					return rdma.ErrLockedMemory
				}
				return nil
			},
		}, why: noDMABuf + `; peermem: not held against staging over SYS: .+`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("pull to auto", func(t *testing.T) {
				rdmatest.SkipUnlessPicked(t)
				tc.copy(t, "auto", false)
			})
			t.Run("push from 0", func(t *testing.T) {
				rdmatest.SkipUnlessPicked(t)
				tc.copy(t, "0", true)
			})
		})
	}
}

func (tc *weighed) copy(t *testing.T, gpu string, push bool) {
	w := tcpWay(t)
	s := serve(t, w)
	n := &nic{Provider: w.provider, name: "tcp", at: "0000:1c:00.0", slow: tc.slow}
	o := w.options(t)
	o.GPU, o.Slots, o.ChunkBytes, o.Require = gpu, 4, 4<<20, tc.require
	if tc.require != "" { // which goes by the provider's name
		n.name, o.Transport = "verbs", "verbs"
		s.ep.Port--
	}
	w.provider = n
	c := w.client(tc.faults)
	c.GPUs = fakeGPUs(t, "peermem", tc.copies)
	xfer.SetSysfs(c, xfer.MachineOf(t, map[string]string{
		"0000:1b:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", n.at: tc.nicPath,
	}))
	content := randomBytes(t, 5<<20)
	var sum *xfer.Summary
	var err error
	from, to := filepath.Join(s.root, "file"), filepath.Join(t.TempDir(), "file")
	if push {
		from, to = to, filepath.Join(s.root, "copy")
		write(t, from, content)
		sum, err = c.Push(t.Context(), []string{from}, s.ep, "copy", o)
	} else {
		write(t, from, content)
		sum, err = c.Pull(t.Context(), s.ep, []string{"file"}, to, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other bytes arrived: %v", err)
	}
	t.Logf("by %s: %s", sum.Local.Rung, sum.Local.Why)
	if sum.Local.Rung != tc.rung || !regexp.MustCompile(tc.why).MatchString(sum.Local.Why) {
		t.Errorf("by %s: %q; want %s, /%s/", sum.Local.Rung, sum.Local.Why, tc.rung, tc.why)
	}
	if isFar := n.seen.Load() > 0; isFar != tc.isFar {
		t.Errorf("%d long transfers over the loopback connection; was to be weighed: %v", n.seen.Load(), tc.isFar)
	}
}

// A way that works on a trial and breaks under load is none.
func TestWaysThatBreakWhenWeighed(t *testing.T) {
	tc := weighed{
		nicPath: "pci0000:80/0000:80:02.0", rung: xfer.RungStaged, why: `; peermem: trial: .+$`,
		faults: rdmatest.Faults{Drop: func(p rdmatest.Posted) bool { return p.Conn == 0 && p.WR.Len >= 1<<20 }},
	}
	tc.copy(t, "auto", false)
	tc.copy(t, "auto", true)
}

// Who stops a copy while a way is weighed does not wait for that.
func TestStoppedWhileWeighing(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	n := &nic{Provider: w.provider, name: "tcp", at: "0000:1c:00.0"}
	w.provider = n
	ctx, stop := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	var stopped atomic.Pointer[time.Time]
	c := w.client(rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
		if p.Conn != 0 || p.WR.Len < 1<<20 {
			return false
		}
		stopped.CompareAndSwap(nil, new(time.Now()))
		stop(enough)
		return true
	}})
	c.GPUs = fakeGPUs(t, "peermem")
	xfer.SetSysfs(c, t.TempDir()) // in which nothing is near
	write(t, filepath.Join(s.root, "file"), []byte("content"))
	o := w.options(t)
	o.GPU, o.Slots, o.ChunkBytes = "auto", 4, 4<<20
	if _, err := c.Pull(ctx, s.ep, []string{"file"}, filepath.Join(t.TempDir(), "file"), o); !errors.Is(err, enough) {
		t.Fatalf("the copy ended with %v", err)
	}
	// A trial lasts 5 s.
	if took := time.Since(*stopped.Load()); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}
