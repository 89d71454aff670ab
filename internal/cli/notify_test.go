package cli

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// manager is a service manager that listens.
type manager struct{ *net.UnixConn }

func newManager(t *testing.T, name string) manager {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return manager{c}
}

// hears waits for one datagram.
func (m manager) hears(t *testing.T, pattern string) {
	t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := m.Read(b)
	if err != nil || !regexp.MustCompile("^"+pattern+"$").Match(b[:n]) {
		t.Fatalf("heard %q, %v, and not %s", b[:n], err, pattern)
	}
}

func TestNotifier(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "socket"), fmt.Sprintf("@gdrcp-test-%d", os.Getpid())} {
		m, n := newManager(t, name), notifier{name}
		for _, c := range []struct {
			say     func() error
			pattern string
		}{
			{n.ready, "READY=1"},
			{n.reloading, `RELOADING=1\nMONOTONIC_USEC=[1-9]\d*`},
			{n.stopping, "STOPPING=1"},
		} {
			if err := c.say(); err != nil {
				t.Fatal(err)
			}
			m.hears(t, c.pattern)
		}
	}
	if err := (notifier{}).ready(); err != nil {
		t.Errorf("without a manager: %v", err)
	}
	if err := (notifier{filepath.Join(t.TempDir(), "none")}).ready(); err == nil {
		t.Error("a manager that is not there was told")
	}
}
