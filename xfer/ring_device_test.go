//go:build linux && cgo

package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
	"gdrcp/xfer"
)

// fakeGPUs lends the memory of GPUs that are the fake's, in a mode. A leak ends the test program.
func fakeGPUs(t *testing.T, words ...string) xfer.GPUs {
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

// ends says which ends have their slots in GPU memory.
type ends struct{ local, remote string }

func (e ends) name() string { return "client-" + e.local + "-server-" + e.remote }

// overGPU copies a tree there and back with slots in GPU memory, and checks the reports of both
// ends. It returns how many chunks of the push were sent again.
func overGPU(t *testing.T, w way, e ends, gpus xfer.GPUs, f rdmatest.Faults, rung xfer.Rung, change func(*xfer.Options)) (repairs int64) {
	t.Helper()
	s := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus })
	src := t.TempDir()
	makeTree(t, src)
	write(t, filepath.Join(src, "large"), randomBytes(t, 9<<20+12345))
	o := w.options(t)
	o.GPU, o.RemoteGPU, o.Slots, o.ChunkBytes = e.local, e.remote, 8, 2<<20
	if change != nil {
		change(&o)
	}
	c := w.client(f)
	c.GPUs = gpus
	sum, err := c.Push(t.Context(), []string{src}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, filepath.Join(s.root, "copy"))
	wantRungs(t, e, sum, rung)
	repairs = s.lastEnd(t, 1).Summary.Repairs
	back := filepath.Join(t.TempDir(), "back")
	if sum, err = c.Pull(t.Context(), s.ep, []string{"copy"}, back, o); err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, back)
	wantRungs(t, e, sum, rung)
	return repairs
}

func wantRungs(t *testing.T, e ends, s *xfer.Summary, rung xfer.Rung) {
	t.Helper()
	want := func(end string, m xfer.Memory, asked string) {
		r := xfer.RungHost
		if asked != "off" {
			r = rung
		}
		if m.Rung != r || (r == xfer.RungStaged && m.Why == "") {
			t.Errorf("%s: slots by %s, want %s: %+v", end, m.Rung, r, m)
		}
	}
	want("local", s.Local, e.local)
	want("remote", s.Remote, e.remote)
	if !s.Verified {
		t.Error("not verified")
	}
}

var allEnds = []ends{{"0", "off"}, {"off", "0"}, {"auto", "auto"}}

// Over TCP every chunk is staged. The fake executes its copies and launches late, so that code that
// does not wait for them finds other bytes.
func TestStagedSlots(t *testing.T) {
	w := tcpWay(t)
	for _, e := range allEnds {
		t.Run(e.name(), func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			overGPU(t, w, e, fakeGPUs(t, "late=1"), rdmatest.Faults{}, xfer.RungStaged, func(o *xfer.Options) {
				o.Slots, o.ChunkBytes = 64, 1<<20 // batches of several chunks
			})
		})
	}
}

// Chunks that the processor must touch are staged too.
func TestStagedSlotsOfTouchedChunks(t *testing.T) {
	w := tcpWay(t)
	for name, change := range map[string]func(*xfer.Options){
		"compressed": func(o *xfer.Options) { o.Compress = xfer.CompressS2 },
		"encrypted":  func(o *xfer.Options) { o.Encrypt = true },
		"xxh3":       func(o *xfer.Options) { o.Hash = manifest.XXH3 },
		"all":        func(o *xfer.Options) { o.Compress, o.Hash, o.Encrypt = xfer.CompressZstd, manifest.SHA256, true },
	} {
		if testing.Short() && name != "all" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			overGPU(t, w, ends{"0", "0"}, fakeGPUs(t, "late=1"), rdmatest.Faults{}, xfer.RungStaged, change)
		})
	}
}

// A manifest that is written has the GPU's digests.
func TestManifestOfGPUDigests(t *testing.T) {
	w, gpus := tcpWay(t), fakeGPUs(t)
	file := filepath.Join(t.TempDir(), "manifest")
	overGPU(t, w, ends{"0", "0"}, gpus, rdmatest.Faults{}, xfer.RungStaged, func(o *xfer.Options) { o.WriteManifest = file })
	overGPU(t, w, ends{"off", "off"}, nil, rdmatest.Faults{}, xfer.RungStaged, func(o *xfer.Options) { o.Hash = manifest.BLAKE3 })
	o := w.options(t)
	o.Manifest, o.GPU, o.RemoteGPU = file, "0", "0"
	src, s := t.TempDir(), serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus })
	write(t, filepath.Join(src, "large"), []byte("not what the manifest says"))
	c := w.client(rdmatest.Faults{})
	c.GPUs = gpus
	sum, err := c.Push(t.Context(), []string{src}, s.ep, "copy", o)
	if err != nil || sum.Corrupt != 1 || sum.Missing == 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	notPublished(t, s.root, "copy/large")
}

// Chunks that are damaged on the way do not pass the GPU's digests, and are
// sent again from its memory.
func TestDamagedChunksAreFoundByTheGPU(t *testing.T) {
	w := tcpWay(t)
	for _, e := range allEnds {
		t.Run(e.name(), func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			if n := overGPU(t, w, e, fakeGPUs(t), rdmatest.Faults{Corrupt: some(isPayload)}, xfer.RungStaged, nil); n == 0 {
				t.Error("nothing was damaged, or nothing was sent again")
			}
		})
	}
}

// Impossible requests are refused with a reason, and nothing is published.
func TestRefusalsOfGPUs(t *testing.T) {
	w := tcpWay(t)
	for _, tc := range []struct {
		name        string
		words       []string
		e           ends
		change      func(*xfer.Options)
		want        string
		unsupported bool
	}{
		{"no GPU here", []string{"none"}, ends{"0", "off"}, nil, `GPU`, true},
		{"no GPU there", []string{"none"}, ends{"off", "0"}, nil, `GPU`, true},
		{"no such GPU", nil, ends{"5", "off"}, nil, `GPU 5`, true},
		{"driver mismatch", []string{"mismatch"}, ends{"0", "off"}, nil, `driver`, true},
		{"out of memory", []string{"oom"}, ends{"0", "off"}, nil, `(?i)out.of.*memory`, false},
		{"failing launch", []string{"badlaunch"}, ends{"0", "off"}, nil, `GPU 0`, false},
		{"failing launch there", []string{"badlaunch"}, ends{"off", "0"}, nil, `GPU 0`, false},
		{"failing kernel", []string{"badkernel"}, ends{"off", "0"}, nil, `GPU 0`, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			gpus := fakeGPUs(t, tc.words...)
			s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
			write(t, filepath.Join(src, "file"), randomBytes(t, 3<<20))
			o := w.options(t)
			o.GPU, o.RemoteGPU = tc.e.local, tc.e.remote
			c := w.client(rdmatest.Faults{})
			c.GPUs = gpus
			_, err := c.Push(t.Context(), []string{filepath.Join(src, "file")}, s.ep, "copy", o)
			if err == nil || !regexp.MustCompile(tc.want).MatchString(err.Error()) {
				t.Errorf("error %v, want one like /%s/", err, tc.want)
			}
			if errors.Is(err, rdma.ErrUnsupported) != tc.unsupported {
				t.Errorf("is %v unsupported?", err)
			}
			notPublished(t, s.root, "copy")
		})
	}
}

// Without a suitable GPU, auto means host memory, and reports the reason.
func TestAutoWithoutGPU(t *testing.T) {
	w := tcpWay(t)
	for _, word := range []string{"none", "oom", "cc=6.1", "prohibited", "badkernel", "badkernel=999"} {
		t.Run(word, func(t *testing.T) {
			gpus := fakeGPUs(t, word)
			s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
			write(t, filepath.Join(src, "file"), randomBytes(t, 100))
			o := w.options(t)
			o.GPU, o.RemoteGPU = "auto", "auto"
			c := w.client(rdmatest.Faults{})
			c.GPUs = gpus
			sum, err := c.Push(t.Context(), []string{filepath.Join(src, "file")}, s.ep, "copy", o)
			if err != nil || sum.Local.Why == "" || sum.Remote.Why == "" {
				t.Fatalf("%+v, %v", sum, err)
			}
			t.Logf("why: %s", sum.Local.Why)
			wantRungs(t, ends{"off", "off"}, sum, xfer.RungHost)
		})
	}
}

// An empty copy ends soon, but not before both ends know where the slots were to be.
func TestSlotsOfACopyOfNothing(t *testing.T) {
	w, gpus := tcpWay(t), fakeGPUs(t, "late=20")
	s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
	o := w.options(t)
	o.GPU, o.RemoteGPU = "0", "0"
	c := w.client(rdmatest.Faults{})
	c.GPUs = gpus
	sum, err := c.Push(t.Context(), []string{src}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	wantRungs(t, ends{"0", "0"}, sum, xfer.RungStaged)
	o.RemoteGPU = "7"
	if _, err := c.Push(t.Context(), []string{src}, s.ep, "again", o); !errors.Is(err, rdma.ErrUnsupported) {
		t.Errorf("GPU 7: %v", err)
	}
}

// rdmaWay is one of the devices that GDRCP_TEST_RDMA names, with the libibverbs
// of the bed that registers dma-bufs or with the system's.
func rdmaWay(t *testing.T, device string, dmabuf bool) way {
	t.Helper()
	library := os.Getenv("BED_VERBS_DMABUF")
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Skip("needs the bed: tests/bed/run-tests ./xfer")
	}
	if dmabuf {
		if library == "" {
			t.Fatal("BED_VERBS_DMABUF names no library")
		}
		t.Setenv("GDRCP_LIBIBVERBS", library)
	}
	for _, w := range ways(t) {
		if w.name == device {
			w.provider = verbs.New()
			return w
		}
	}
	t.Fatalf("GDRCP_TEST_RDMA does not name %s", device)
	return way{}
}

// The device writes and reads memory that the processor may not touch.
func TestDirectSlots(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for _, tc := range []struct {
		name  string
		words []string
		rung  xfer.Rung
	}{
		{"dma-buf", []string{"cc=8.0"}, xfer.RungDMABuf},
		{"dma-buf late", []string{"cc=9.0", "late=1"}, xfer.RungDMABuf},
		{"peermem", []string{"peermem", "cc=8.0"}, xfer.RungPeermem},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := rdmaWay(t, "rxe0", true)
			list := allEnds
			if os.Getenv("GDRCP_TEST_FULL") != "1" {
				list = allEnds[2:]
			}
			for _, e := range list {
				t.Run(e.name(), func(t *testing.T) {
					overGPU(t, w, e, fakeGPUs(t, tc.words...), rdmatest.Faults{}, tc.rung, func(o *xfer.Options) {
						o.Require = "gpudirect"
						if tc.words[0] == "cc=9.0" {
							o.WriteManifest = filepath.Join(t.TempDir(), "manifest")
						}
					})
				})
			}
		})
	}
}

// pullToGPU copies a file from a server to a client with its slots in GPU memory.
func pullToGPU(t *testing.T, w way, f rdmatest.Faults, change func(*xfer.Options), words ...string) *xfer.Summary {
	t.Helper()
	s := serve(t, w)
	content := randomBytes(t, 5<<20)
	write(t, filepath.Join(s.root, "file"), content)
	o := w.options(t)
	o.GPU = "0"
	change(&o)
	c := w.client(f)
	c.GPUs = fakeGPUs(t, words...)
	dst := filepath.Join(t.TempDir(), "file")
	sum, err := c.Pull(t.Context(), s.ep, []string{"file"}, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other bytes arrived: %v", err)
	}
	return sum
}

// Received data is flushed if the kind of GPU needs it, or always.
func TestFlushOfGPUMemory(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for _, tc := range []struct {
		word, flush string
		want        xfer.Flush
	}{
		{"cc=8.0", "auto", xfer.FlushRead},
		{"cc=9.0", "auto", xfer.FlushNone},
		{"cc=9.0", "always", xfer.FlushRead},
	} {
		t.Run(tc.word+" "+tc.flush, func(t *testing.T) {
			w := rdmaWay(t, "rxe0", true)
			var flushes atomic.Int64
			seen := rdmatest.Faults{Drop: func(p rdmatest.Posted) bool {
				if p.Conn == 0 && p.WR.Op == rdma.OpRead && p.WR.Len == 1 {
					flushes.Add(1)
				}
				return false
			}}
			sum := pullToGPU(t, w, seen, func(o *xfer.Options) { o.GPUFlush = tc.flush }, tc.word)
			if sum.Local.Flush != tc.want || (flushes.Load() > 0) != (tc.want == xfer.FlushRead) {
				t.Errorf("%d flushes, said was %q, want %q", flushes.Load(), sum.Local.Flush, tc.want)
			}
		})
	}
}

// A successful registration is not trusted: if the trial fails, chunks are staged.
func TestTrialDecides(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for name, f := range map[string]rdmatest.Faults{
		"no loopback":    {Loopback: func() error { return os.ErrPermission }},
		"transfer fails": {Drop: func(p rdmatest.Posted) bool { return p.Conn == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			sum := pullToGPU(t, rdmaWay(t, "rxe0", true), f, func(*xfer.Options) {})
			wantRungs(t, ends{"0", "off"}, sum, xfer.RungStaged)
			t.Logf("why: %s", sum.Local.Why)
		})
	}
}

// If the device does not reach the GPU's memory, each memory path reports why.
func TestRungsThatFail(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for _, tc := range []struct {
		name, device string
		dmabuf       bool
		words        []string
		want         string
	}{
		{"plain library", "rxe0", false, nil, `^dma-buf: .+; peermem: .+`},
		{"siw", "siw0", true, nil, `^dma-buf: .+; peermem: .+`},
		{"nothing exports", "rxe0", true, []string{"nodmabuf"}, `^dma-buf: .+; peermem: .+`},
		{"BAR1 is full", "rxe0", true, []string{"bar1full"}, `^dma-buf: .+; peermem: .+`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := rdmaWay(t, tc.device, tc.dmabuf)
			gpus := fakeGPUs(t, tc.words...)
			s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
			write(t, filepath.Join(src, "file"), randomBytes(t, 3<<20))
			o := w.options(t)
			o.GPU, o.RemoteGPU = "0", "0"
			c := w.client(rdmatest.Faults{})
			c.GPUs = gpus
			sum, err := c.Push(t.Context(), []string{filepath.Join(src, "file")}, s.ep, "copy", o)
			if err != nil {
				t.Fatal(err)
			}
			wantRungs(t, ends{"0", "0"}, sum, xfer.RungStaged)
			for _, m := range []xfer.Memory{sum.Local, sum.Remote} {
				t.Logf("why: %s", m.Why)
				if !regexp.MustCompile(tc.want).MatchString(m.Why) {
					t.Errorf("why %q, want it like /%s/", m.Why, tc.want)
				}
			}
			o.Require = "gpudirect"
			_, err = c.Push(t.Context(), []string{filepath.Join(src, "file")}, s.ep, "direct", o)
			if !errors.Is(err, rdma.ErrUnsupported) {
				t.Errorf("gpudirect is required: %v", err)
			}
			notPublished(t, s.root, "direct")
		})
	}
}

// Chunks that the processor must touch do not matter to GPUDirect.
func TestGPUDirectOfTouchedChunks(t *testing.T) {
	w := rdmaWay(t, "rxe0", true)
	gpus := fakeGPUs(t)
	s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
	write(t, filepath.Join(src, "file"), randomBytes(t, 1<<20))
	o := w.options(t)
	o.GPU, o.Require, o.Compress = "0", "gpudirect", xfer.CompressS2
	c := &xfer.Client{Verbs: w.provider, TCP: tcp.New(), GPUs: gpus}
	_, err := c.Push(t.Context(), []string{filepath.Join(src, "file")}, s.ep, "copy", o)
	if !errors.Is(err, rdma.ErrUnsupported) || !regexp.MustCompile(`compressed`).MatchString(err.Error()) {
		t.Errorf("%v", err)
	}
}
