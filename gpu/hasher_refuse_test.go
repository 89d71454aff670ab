//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestBeginRefuses(t *testing.T) {
	d := openFake(t, "gpus=2")
	c, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", c) })
	other, err := d.Use(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", other) })
	b := newHashBench(t, c, 3, 10000)
	m, foreign := b.load(make([]byte, 20000)), alloc(t, other, 4096)
	closed, err := c.Alloc(4096)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, "memory", closed)

	ok := HashJob{Memory: m, Len: 3000}
	for name, jobs := range map[string][]HashJob{
		"more than 10000 bytes":           {{Memory: m, Len: 10001}},
		"job 2: more than 10000 bytes":    {{Memory: m, Len: 5000}, ok, {Memory: m, Len: 2001}},
		"4 jobs at once, of at most 3":    {ok, ok, ok, ok},
		"job 1: offset 32":                {ok, {Memory: m, Offset: 32, Len: 1}},
		"1 bytes at offset 20032":         {{Memory: m, Offset: 20032, Len: 1}},
		"33 bytes at offset 19968":        {{Memory: m, Offset: 19968, Len: 33}},
		"1 bytes at offset -64":           {{Memory: m, Offset: -64, Len: 1}},
		"-1 bytes at offset 0":            {{Memory: m, Len: -1}},
		"no memory":                       {{Len: 1}},
		"memory of another context":       {{Memory: foreign, Len: 1}},
		"job 0: memory: closed":           {{Memory: closed, Len: 1}},
		"a root that begins with chunk 7": {{Memory: m, Len: 1, Counter: 7, Root: true}},
	} {
		if err := b.hasher.Begin(b.stream, jobs); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := b.hasher.Begin(newStream(t, other), []HashJob{ok}); !errors.Is(err, errOtherGPU) {
		t.Errorf("a stream of another context: %v", err)
	}
	// The maximum is not an error, nor are empty jobs, nor memory of another user.
	b.compare(make([]byte, 20000), []HashJob{{Memory: m, Len: 10000}, {Memory: m, Offset: 19968}, {Memory: m}})
	b.digest(nil)
	same, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", same) })
	b.digest([]HashJob{{Memory: alloc(t, same, 4096), Len: 4096}})
}

func TestNewHasherRefuses(t *testing.T) {
	c := useFake(t)
	for _, size := range [][2]int{{0, 1}, {-1, 1}, {1, -1}, {1 << 31, 1}, {1, 1 << 42}, {1 << 30, 1 << 41}} {
		if h, err := c.NewHasher(size[0], size[1]); err == nil {
			h.Close()
			t.Errorf("a hasher for %d jobs of %d bytes", size[0], size[1])
		}
	}
	if _, err := useFake(t, "cc=6.1").NewHasher(1, 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("compute capability 6.1: %v", err)
	}
	// No object may remain open, which the fake checks.
	if _, err := useFake(t, "oom").NewHasher(1, 1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("without memory: %v", err)
	}
}

func TestBeginTellsOfABadLaunch(t *testing.T) {
	b := newHashBench(t, useFake(t, "badlaunch"), 1, 100)
	m := b.load(make([]byte, 100))
	if err := b.hasher.Begin(b.stream, []HashJob{{Memory: m, Len: 100}}); !isCode(err, 701) {
		t.Errorf("begin: %v", err)
	}
}

// After a kernel has failed no object of the process can be freed; the errors
// of those calls are not reported again.
func TestWaitTellsOfABadKernel(t *testing.T) {
	d := openFake(t, "badkernel")
	c, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.NewHasher(1, 100)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	err = h.Begin(s, []HashJob{{Memory: m, Len: 100}})
	if err = errors.Join(err, s.Wait()); !isCode(err, 719) {
		t.Errorf("wait: %v", err)
	}
	for what, object := range map[string]interface{ Close() error }{"hasher": h, "stream": s, "memory": m} {
		closes(t, what, object)
	}
	closes(t, "context", c)
}

// A Begin waits for the previous one, whose jobs must be digested as given,
// even if nobody waited for its stream.
func TestBeginWaitsForTheOneBefore(t *testing.T) {
	c := useFake(t, "late", "strict")
	b := newHashBench(t, c, 2, 1<<20)
	data := noise(300 << 10)
	job := HashJob{Memory: b.load(data), Len: len(data), Counter: 3}
	if err := b.hasher.Begin(b.stream, []HashJob{job}); err != nil {
		t.Fatal(err)
	}
	if err := b.hasher.Begin(newStream(t, c), nil); err != nil {
		t.Fatal(err)
	}
	if got := [32]byte(b.hasher.host[b.hasher.layout.digests:]); got != onCPU(data, &job) {
		t.Errorf("digest %x when the second Begin returned", got)
	}
	// Closing waits, too: otherwise the fake's memory would be freed while kernels use it.
	if err := b.hasher.Begin(b.stream, []HashJob{job}); err != nil {
		t.Fatal(err)
	}
	closes(t, "hasher", b.hasher)
	closes(t, "hasher that is closed", b.hasher)
	if err := b.hasher.Begin(b.stream, []HashJob{job}); !errors.Is(err, ErrClosed) {
		t.Errorf("begin on a hasher that is closed: %v", err)
	}
}

func TestHashersShareKernels(t *testing.T) {
	d := openFake(t)
	c, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", c) })
	other, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "other context", other) })
	first, second, third := newHashBench(t, c, 1, 5000), newHashBench(t, c, 1, 5000), newHashBench(t, other, 1, 5000)
	data := noise(5000)
	m := first.load(data)
	closes(t, "hasher", first.hasher)
	second.compare(data, []HashJob{{Memory: m, Len: 5000}})
	closes(t, "hasher", second.hasher)
	third.compare(data, []HashJob{{Memory: third.load(data), Len: 5000}})
	newHashBench(t, c, 1, 5000).compare(data, []HashJob{{Memory: m, Len: 5000}})
	if n := c.kept.own.open["modules"]; n != 1 {
		t.Errorf("%d modules for all hashers", n)
	}
}

func TestBeginAllocatesNothing(t *testing.T) {
	b := newHashBench(t, useFake(t), 100, 4<<20)
	m := b.load(make([]byte, 300<<10))
	jobs := make([]HashJob, 10)
	for i := range jobs {
		jobs[i] = HashJob{Memory: m, Len: i * 30000}
	}
	var err error
	if n := testing.AllocsPerRun(10, func() {
		err = errors.Join(b.hasher.Begin(b.stream, jobs), b.stream.Wait())
		_ = b.hasher.Digest(3)
	}); n != 0 || err != nil {
		t.Errorf("a Begin allocates %g times, %v", n, err)
	}
}
