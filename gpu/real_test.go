//go:build linux && cgo

package gpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// useReal opens this machine's first GPU, or the one that CUDA_VISIBLE_DEVICES
// names. Without a GPU the test is skipped, or fails if GDRCP_REQUIRE=gpu. With
// GDRCP_LIBCUDA the fake can take the place of the driver, to test these tests.
func useReal(t testing.TB) *Context {
	t.Helper()
	c, err := firstGPU(t)
	if err == nil {
		t.Cleanup(func() { closes(t, "context", c) })
		return c
	}
	if slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "gpu") {
		t.Fatalf("GDRCP_REQUIRE wants a GPU: %v", err)
	}
	t.Skipf("no GPU to test with: %v; `make gpu-test` says how to run this elsewhere", err)
	return nil
}

func firstGPU(t testing.TB) (*Context, error) {
	d, err := Open()
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { closes(t, "driver", d) })
	return d.Use(context.Background(), 0)
}

func TestRealDevice(t *testing.T) {
	c := useReal(t)
	d := c.Device()
	t.Logf("%+v", d)
	if d.Name == "" || d.MemoryBytes < 1<<30 || d.ComputeMajor < 5 || !strings.Contains(d.PCIAddress, ":") || d.DriverVersion == "" {
		t.Errorf("not a GPU: %+v", d)
	}
}

// TestRealCopies copies bytes to the GPU, within it and back, at odd offsets.
func TestRealCopies(t *testing.T) {
	const n = 5<<20 + 123
	c := useReal(t)
	s, from, to := newStream(t, c), alloc(t, c, n+1000), alloc(t, c, n+1000)
	sent, got := pinned(t, c, n), pinned(t, c, n+1000)
	copy(sent, noise(n))
	mark, err := c.NewMark()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "mark", mark) })
	err = errors.Join(s.ToDevice(from, 77, sent), s.Copy(to, 501, from, 77, n), s.ToHost(got, to, 0), s.Record(mark), mark.Wait())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(got)) // memory is allocated zeroed
	copy(want[501:], sent)
	if !bytes.Equal(got, want) {
		t.Error("other bytes came back")
	}
}

// TestRealWordMark waits for words that a stream writes to the host's memory,
// and logs how many arrived.
func TestRealWordMark(t *testing.T) {
	c := useReal(t)
	s, m, mark := newStream(t, c), alloc(t, c, 1<<20), newWordMark(t, c)
	sent, got := pinned(t, c, 1<<20), pinned(t, c, 1<<20)
	written := 0
	for i := range 100 {
		fill(sent, byte(i))
		if err := errors.Join(s.ToDevice(m, 0, sent), s.ToHost(got, m, 0), s.Record(mark), mark.Wait()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("round %d: the mark was there before the bytes", i)
		}
		if mark.word != nil && mark.word.written() {
			written++
		}
	}
	t.Logf("%d of 100 words were written", written)
}

// TestRealDigests digests with the kernels that a copy uses, and with PTX
// kernels, which the driver compiles.
func TestRealDigests(t *testing.T) {
	c := useReal(t)
	t.Run("chosen", func(t *testing.T) { realDigests(t, c) })
	t.Run("PTX", func(t *testing.T) {
		ptx := new(hashKernels)
		if err := ptx.loadImage(c, "PTX", []byte(blake3PTX)); err != nil {
			t.Fatal(err)
		}
		keep := func(k *hashKernels) (before *hashKernels) {
			c.kept.mu.Lock()
			defer c.kept.mu.Unlock()
			before, c.kept.kernels = c.kept.kernels, k
			return before
		}
		chosen := keep(ptx)
		t.Cleanup(func() {
			keep(chosen)
			if err := ptx.module.unload(); err != nil {
				t.Error(err)
			}
		})
		realDigests(t, c)
	})
}

func realDigests(t *testing.T, c *Context) {
	data := noise(64 << 20)
	b := newHashBench(t, c, 6000, len(data))
	t.Logf("kernels: %s; they write digests to the host's memory: %v", b.hasher.kernels.form, b.hasher.pinned.addr != 0)
	m := b.load(data)
	rng := rand.New(rand.NewPCG(9, 10))
	every := make([]int, 4201)
	for i := range every {
		every[i] = i
	}
	lists := [][]int{every, {len(data)}, {0}, {100, 33<<20 + 1, 20<<20 - 1}}
	for range 10 {
		var random []int
		for left := len(data); len(random) < 6000; {
			n := rng.IntN(1<<rng.IntN(23) + 1)
			if left -= (n + 63) / 64 * 64; left < 0 {
				break
			}
			random = append(random, n)
		}
		lists = append(lists, random)
	}
	for _, lengths := range lists {
		jobs, _ := jobsOf(m, rng, lengths)
		b.compare(data, jobs)
	}
}

// TestRealUsersOfADispatcher has several users digest concurrently, in shared launches.
func TestRealUsersOfADispatcher(t *testing.T) {
	c := useReal(t)
	data := noise(32 << 20)
	b := newHashBench(t, c, 1, 1)
	m := b.load(data)
	var users errgroup.Group
	for n := range 4 {
		s, err := c.NewSubmitter(2)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closes(t, "submitter", s) })
		for half := range uint64(2) {
			users.Go(func() error {
				rng := rand.New(rand.NewPCG(uint64(n), half))
				for range 50 {
					jobs := make([]HashJob, 1+rng.IntN(30))
					for i := range jobs {
						size := rng.IntN(1<<rng.IntN(21) + 1)
						jobs[i] = HashJob{Memory: m, Offset: rng.IntN(len(data)-size) / 64 * 64, Len: size, Counter: uint64(i)}
					}
					digests := make([][32]byte, len(jobs))
					if err := s.Digest(jobs, digests); err != nil {
						return err
					}
					for i := range jobs {
						if digests[i] != onCPU(data, &jobs[i]) {
							t.Errorf("user %d: %d bytes at %d: %x", n, jobs[i].Len, jobs[i].Offset, digests[i])
						}
					}
				}
				return nil
			})
		}
	}
	if err := users.Wait(); err != nil {
		t.Error(err)
	}
}

// TestRealExport exports memory if the device supports that.
func TestRealExport(t *testing.T) {
	c := useReal(t)
	m := alloc(t, c, 64<<20)
	fd, offset, err := m.DMABuf()
	if !c.Device().DMABuf {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("export from a device that has no dma-bufs: %v", err)
		}
		t.Skipf("%s exports no dma-bufs here: open kernel modules and CUDA 11.7 do", c.Device().Name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if end, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil || end < int64(offset)+64<<20 {
		t.Errorf("a dma-buf of %d bytes, from %d on 64 MiB are wanted: %v", end, offset, err)
	}
}

func TestRealFlush(t *testing.T) {
	c := useReal(t)
	if err := c.FlushWrites(); c.Device().HostFlush && err != nil || !c.Device().HostFlush && !errors.Is(err, ErrUnsupported) {
		t.Errorf("flush, of which the device says %v: %v", c.Device().HostFlush, err)
	}
}
