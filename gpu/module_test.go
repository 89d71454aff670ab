//go:build linux && cgo

package gpu

import (
	"bytes"
	"errors"
	"testing"
)

// fillModule stands in for PTX: the fake needs no more than this.
const fillModule = ".version 7.0\n.entry fake_fill\n.entry no_such_kernel\n"

func loadFill(t *testing.T, c *Context) *kernel {
	t.Helper()
	m, err := c.loadModule([]byte(fillModule))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.unload(); err != nil {
			t.Error(err)
		}
	})
	k, err := m.kernel("fake_fill")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLaunch(t *testing.T) {
	c := useFake(t, "late", "strict")
	k, s, m := loadFill(t, c), newStream(t, c), alloc(t, c, 1<<20)
	host := pinned(t, c, m.Len())
	if err := s.launch(k, 4, 128, 0, m.Addr()+100, 'x', 1000); err != nil {
		t.Fatal(err)
	}
	if err := s.ToHost(host, m, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(host))
	copy(want[100:], bytes.Repeat([]byte{'x'}, 1000))
	if !bytes.Equal(host, want) {
		t.Error("the kernel did not do what its arguments say")
	}
	if n := testing.AllocsPerRun(10, func() { _ = s.launch(k, 4, 128, 0, m.Addr(), 'x', 1000) }); n != 0 {
		t.Errorf("a launch allocates %g times", n)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}

func TestLaunchRefused(t *testing.T) {
	c := useFake(t)
	k, s := loadFill(t, c), newStream(t, c)
	for name, shape := range map[string][3]int{"no block": {0, 1, 0}, "no thread": {1, 0, 0}, "threads": {1, 1025, 0}, "shared": {1, 1, 48<<10 + 1}} {
		if err := s.launch(k, shape[0], shape[1], shape[2], 0, 0, 0); !isCode(err, 1) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := k.module.kernel("no_such_kernel"); !isCode(err, 500) {
		t.Errorf("a kernel that the fake has not got: %v", err)
	}
	if _, err := c.loadModule([]byte("no PTX")); !isCode(err, 200) {
		t.Errorf("an image that is none: %v", err)
	}
	if err := s.launch(k, 1, 1, 0, make([]uint64, 17)...); !isCode(err, 1) {
		t.Errorf("17 parameters: %v", err)
	}
}

func isCode(err error, code int) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code && e.Name != ""
}

func TestBadLaunch(t *testing.T) {
	c := useFake(t, "badlaunch")
	k, s, m := loadFill(t, c), newStream(t, c), alloc(t, c, 4096)
	if err := s.launch(k, 1, 1, 0, m.Addr(), 1, 1); !isCode(err, 701) {
		t.Errorf("launch: %v", err)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("wait after a launch that was refused: %v", err)
	}
}
