package cli

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// Waits grow from a second to a minute, and vary by a quarter.
func TestRetryWait(t *testing.T) {
	for _, c := range []struct {
		retry  int
		random float64
		want   time.Duration
	}{
		{1, 0.5, time.Second}, {1, 0, 750 * time.Millisecond}, {1, 1, 1250 * time.Millisecond}, {2, 0.5, 2 * time.Second}, {3, 0.5, 4 * time.Second},
		{6, 0.5, 32 * time.Second}, {7, 0.5, time.Minute}, {1 << 30, 0.5, time.Minute}, {1 << 30, 1, 75 * time.Second},
	} {
		if got := retryWait(c.retry, c.random); got != c.want {
			t.Errorf("retry %d, random %v: %v, want %v", c.retry, c.random, got, c.want)
		}
	}
}

// nicWithoutRing is a device that can register little memory.
type nicWithoutRing struct{ softDevice }

func (n nicWithoutRing) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	return rdmatest.Faulty(n.Provider, rdmatest.Faults{Register: func(what rdma.Region, _ rdma.Access) error {
		if what.Len > 1<<20 {
			return syscall.EIO
		}
		return nil
	}}).Open(device, cfg)
}

// Another device or TCP does not count as a retry: it is used even if retries are
// disabled.
func TestOtherWaysAreNoRetries(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	file := filepath.Join(t.TempDir(), "file")
	makeFiles(t, filepath.Dir(file), map[string]string{"file": "content"})
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"no retries":               {exitOK, []string{"--retries", "0", file}},
		"a stream":                 {exitOK, []string{"-"}},
		"a manifest":               {exitOK, []string{"--write-manifest", filepath.Join(t.TempDir(), "manifest"), file}},
		"bounded deletion":         {exitOK, []string{"-r", "--delete", "--max-delete", "1", filepath.Dir(file) + "/."}},
		"no retries, and no other": {exitError, []string{"--retries", "0", "--require", "verbs", file}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServerWith(t, softDevice{tcp.New()}, "--listen", ":0")
			p, out, errs := newProgram()
			p.verbs = nicWithoutRing{softDevice{p.tcp}}
			in, fill, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			_, err = fill.WriteString("content")
			if err = errors.Join(err, fill.Close()); err != nil {
				t.Fatal(err)
			}
			p.input = func() (*dest.Pipe, error) { return dest.NewInput(int(in.Fd()), "standard input") }
			dst := s.url("file")
			if c.args[0] == "-r" {
				dst = s.url("")
			}
			r := result{p.run(t.Context(), append(append([]string{"gdrcp"}, c.args...), dst)), out.String(), errs.String()}
			r.want(t, c.code)
			if c.code != exitOK {
				return
			}
			if got, err := os.ReadFile(filepath.Join(s.root, "file")); string(got) != "content" || !strings.Contains(r.err, "; next over TCP") {
				t.Errorf("it wrote %q, and the file has %q (%v)", r.err, got, err)
			}
		})
	}
}
