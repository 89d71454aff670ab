//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gdrcp/gpu/gputest"
)

// crashes are programs that must be killed for what they do, keyed by the value
// of crashName that selects them.
var crashes = map[string]struct {
	words string
	do    func(*Context) error
	tells string // expected on standard error
}{
	"read device memory": {"", func(c *Context) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		return fmt.Errorf("read %d", processorView(m)[0])
	}, "SIGSEGV"},
	"write device memory": {"", func(c *Context) error {
		m, err := c.Alloc(4096)
		if err != nil {
			return err
		}
		processorView(m)[0] = 1
		return nil
	}, "SIGSEGV"},
	"release with a registration left": {"late=50", leaveRegistration, "GPU 0 is released with 0 allocations, 1 registrations, 0 streams, 0 events, 0 modules"},
}

const crashName = "GDRCP_TEST_CRASH"

// leaveRegistration closes pinned memory that a copy still uses, which the fake
// refuses and the driver would not.
func leaveRegistration(c *Context) error {
	host, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	m, err := c.Alloc(4096)
	s, err2 := c.NewStream()
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	for range 20 { // unless this thread was delayed for longer than the copy takes
		p, err := c.Pin(host)
		if err != nil {
			return err
		}
		if err := s.ToDevice(m, 0, host); err != nil {
			return err
		}
		if p.Close() != nil {
			return errors.Join(s.Wait(), s.Close(), m.Close(), c.Close())
		}
	}
	return errors.New("unpinned while a copy was under way")
}

// processorView maps device memory as no program may access it.
func processorView(m *Memory) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), uintptr(m.Addr()))), m.Len())
}

func TestCrash(t *testing.T) {
	if name := os.Getenv(crashName); name != "" {
		crash(t, name)
		return
	}
	for name, tt := range crashes {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$")
			cmd.Env = append(os.Environ(), crashName+"="+name, gputest.Library+"="+os.Getenv(fakeLibrary))
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), tt.tells) || strings.Contains(string(out), "survived") {
				t.Errorf("%v, want a crash that tells %q:\n%s", err, tt.tells, out)
			}
		})
	}
}

func crash(t *testing.T, name string) {
	tt := crashes[name]
	gputest.Set(t, os.Getenv(fakeLibrary), tt.words)
	d, err := Open()
	if err != nil {
		t.Fatalf("survived: %v", err)
	}
	c, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatalf("survived: %v", err)
	}
	t.Fatalf("survived: %v", errors.Join(tt.do(c), d.Close()))
}

// TestKernelAccess: the kernel can access device memory on behalf of the
// processor only if the processor can; in the mode peermem both can.
func TestKernelAccess(t *testing.T) {
	for mode, ok := range map[string]bool{"dmabuf": false, "nodmabuf": false, "peermem": true, "peermem,bar1full": false} {
		m := alloc(t, useFake(t, mode), 4096)
		var pipe [2]int
		if err := unix.Pipe(pipe[:]); err != nil {
			t.Fatal(err)
		}
		n, err := unix.Write(pipe[1], processorView(m)[:100])
		if ok && (n != 100 || err != nil) || !ok && !errors.Is(err, unix.EFAULT) {
			t.Errorf("%s: the kernel read %d bytes, %v", mode, n, err)
		}
		for _, fd := range pipe {
			if err := unix.Close(fd); err != nil {
				t.Error(err)
			}
		}
	}
}
