//go:build linux && cgo

package gpu

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/gpu/gputest"
)

// fakeLibrary names the variable with the fake that TestMain built for this
// package's tests.
const fakeLibrary = "GDRCP_TEST_FAKE_CUDA"

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "gdrcp-gpu")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	library, err := gputest.Build(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(fakeLibrary, library); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// openFake opens the fake driver with words of GDRCP_FAKE_CUDA, and closes it
// when the test ends.
func openFake(t testing.TB, words ...string) *Driver {
	t.Helper()
	gputest.Set(t, gputest.Fresh(t, os.Getenv(fakeLibrary)), words...)
	d, err := Open()
	if err != nil {
		t.Fatalf("open with %v: %v", words, err)
	}
	t.Cleanup(func() { closes(t, "driver", d) })
	return d
}

// useFake opens the fake's first GPU.
func useFake(t testing.TB, words ...string) *Context {
	t.Helper()
	c, err := openFake(t, words...).Use(context.Background(), 0)
	if err != nil {
		t.Fatalf("use GPU 0 with %v: %v", words, err)
	}
	t.Cleanup(func() { closes(t, "context", c) })
	return c
}

func closes(t testing.TB, what string, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close %s: %v", what, err)
	}
}

func alloc(t testing.TB, c *Context, n int) *Memory {
	t.Helper()
	m, err := c.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "memory", m) })
	return m
}

func newStream(t testing.TB, c *Context) *Stream {
	t.Helper()
	s, err := c.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "stream", s) })
	return s
}

// hostMemory returns memory outside the Go heap, which is unmapped when the test ends.
func hostMemory(t testing.TB, n int) []byte {
	t.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			t.Error(err)
		}
	})
	return mem
}

// pinned returns host memory that is registered with the GPU.
func pinned(t testing.TB, c *Context, n int) []byte {
	t.Helper()
	mem := hostMemory(t, n)
	p, err := c.Pin(mem)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "pinned memory", p) })
	return mem
}
