package cli

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A DST that is a device or FIFO, or a link to one, is written to and not replaced, on
// this host and over ssh.
func TestCopyToSpecial(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	text := strings.Repeat("some bytes ", 300_000)
	makeFiles(t, dir, map[string]string{"f": text, "empty": "", "d/f": "", "holes": ""})
	if err := os.Truncate("holes", 3<<20+5); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"null": "/dev/null", "full": "/dev/full", "chain": "null", "pipe-link": "pipe", "link": "f", "d/null": "/dev/null"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"pipe", "d/pipe"} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := net.Listen("unix", "socket"); err != nil {
		t.Fatal(err)
	} else {
		defer l.Close()
	}
	makeFiles(t, dir, map[string]string{"into/null": ""})
	for _, c := range []struct {
		args string
		code int
		want string // of the messages
		read string // what the reader of the FIFO receives, or "-" if nobody reads
	}{
		{"f pipe", exitOK, "verified", text},
		{"-a f pipe-link", exitOK, "verified", text},
		{"empty pipe", exitOK, "verified", ""},
		{"holes pipe", exitOK, "verified", strings.Repeat("\x00", 3<<20+5)},
		{"-aHX --inplace --delete -c f chain", exitOK, "verified", "-"},
		{"f full", exitError, "no space left on device", "-"},
		{"-n f pipe", exitOK, "would copy 1 file", "-"},
		{"--ignore-existing f pipe", exitOK, "1 kept", "-"},
		{"--timeout 1 f pipe", exitError, "no progress for 1s", "-"},
		{"-r d null", exitError, "not a directory", "-"},
		{"f empty null", exitError, "not a directory", "-"},
		{"-l link null", exitError, "a device, fifo or socket has that name", "-"},
		{"--verify-written f null", exitUsage, "the destination is a device", "-"},
		{"f socket", exitError, "a device, fifo or socket has that name", "-"},
		{"into/null d", exitPartial, "a device, fifo or socket has that name", "-"},
	} {
		for _, far := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, far %t", c.args, far), func(t *testing.T) {
				got := make(chan string, 1)
				if c.read != "-" {
					go func() {
						b, err := os.ReadFile("pipe")
						got <- fmt.Sprint(string(b), err)
					}()
				}
				args := strings.Fields(c.args)
				run := gdrcp
				if at := len(args) - 1; far {
					args[at] = "h:" + filepath.Join(dir, args[at])
					run = func(t testing.TB, args ...string) result { return overShell(t.(*testing.T), args...) }
				}
				r := run(t, args...)
				if r.code != c.code && !(far && c.code == exitUsage && r.code == exitError) || !strings.Contains(r.err, c.want) {
					t.Errorf("exit code %d, and it said %s", r.code, r.err)
				}
				if c.read == "-" {
					return
				}
				select {
				case got := <-got:
					if got != c.read+"<nil>" {
						t.Errorf("a reader got %d bytes, want %d", len(got), len(c.read))
					}
				case <-time.After(10 * time.Second):
					t.Fatal("a reader still waits")
				}
			})
		}
	}
	for name, to := range map[string]string{"null": "/dev/null", "full": "/dev/full", "pipe-link": "pipe", "d/null": "/dev/null"} {
		if got, err := os.Readlink(name); got != to {
			t.Errorf("%s is now %q, %v", name, got, err)
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat("pipe", &st); err != nil || st.Mode != unix.S_IFIFO|0o600 {
		t.Errorf("the fifo is now %#o, %v", st.Mode, err)
	}
}

// A server never writes to a device or FIFO that it serves, not through a link either.
func TestServerWritesToNoSpecial(t *testing.T) {
	s := startServer(t)
	here := t.TempDir()
	makeFiles(t, here, map[string]string{"f": "text"})
	if err := syscall.Mkfifo(s.root+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"inside": "pipe", "outside": "/dev/full"} {
		if err := os.Symlink(to, filepath.Join(s.root, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := gdrcp(t, here+"/f", s.url("pipe")).want(t, exitPartial)
	if !strings.Contains(r.err, "a device, fifo or socket has that name") {
		t.Errorf("it said %s", r.err)
	}
	gdrcp(t, here+"/f", s.url("outside")).want(t, exitError) // it leads out of the root
	gdrcp(t, here+"/f", s.url("inside")).want(t, exitOK)     // the link is replaced
	if got, err := os.ReadFile(s.root + "/inside"); string(got) != "text" {
		t.Errorf("the name of the link holds %q, %v", got, err)
	}
}

// The names of this process's descriptors lead to them, by whatever path.
func TestDescriptorAt(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, to := range map[string]string{"out": "/dev/stdout", "rel": "out", "loop": "loop", "file": "f", "fd": "/proc/self/fd"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	makeFiles(t, dir, map[string]string{"f": "", "1": ""})
	for path, want := range map[string]int{
		"/dev/stdout": 1, "/dev/stderr": 2, "/dev/fd/63": 63, "/proc/self/fd/1": 1, "out": 1, dir + "/rel": 1, "fd/7": 7,
		"loop": 0, "file": 0, "f": 0, "1": 0, "none": 0, "none/1": 0, "/dev/null": 0, "fd": 0, "fd/": 0, "/proc/1/fd/1": 0, "-": 0, "": 0,
	} {
		if got, is := descriptorAt(path); got != want || is != (want > 0) {
			t.Errorf("%q leads to descriptor %d (%t), want %d", path, got, is, want)
		}
	}
}

// A DST that names a descriptor of the program is written at its offset, like -.
func TestCopyToDescriptor(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"f": "text", "log": "before\n"})
	log, err := os.OpenFile(dir+"/log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", log.Fd()), dir+"/link"); err != nil {
		t.Fatal(err)
	}
	gdrcp(t, "-a", dir+"/f", dir+"/link").want(t, exitOK)
	if got, err := os.ReadFile(dir + "/log"); string(got) != "before\ntext" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if to, err := os.Readlink(dir + "/link"); !strings.HasPrefix(to, "/dev/fd/") {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}

// A descriptor of a directory is treated as its path, and standard input is refused as
// a DST.
func TestDescriptorsThatAreNoStreams(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"from/f": "text", "into/old": ""})
	into, err := os.Open(dir + "/into")
	if err != nil {
		t.Fatal(err)
	}
	defer into.Close()
	gdrcp(t, "-a", dir+"/from", fmt.Sprintf("/dev/fd/%d", into.Fd())).want(t, exitOK)
	if got, err := os.ReadFile(dir + "/into/from/f"); string(got) != "text" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	r := gdrcp(t, dir+"/from/f", "/dev/stdin").want(t, exitUsage)
	if r.out != "" || !strings.Contains(r.err, "standard input") {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
}

// A copy ends when the reader of a FIFO leaves.
func TestReaderOfFIFOLeaves(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"f": strings.Repeat("x", 4<<20)})
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(50 * time.Millisecond) // the copy waits
		if f, err := os.Open(dir + "/pipe"); err == nil {
			_, _ = io.CopyN(io.Discard, f, 1000)
			f.Close()
		}
	}()
	r := gdrcp(t, dir+"/f", dir+"/pipe").want(t, exitError)
	if !strings.Contains(r.err, "broken pipe") {
		t.Errorf("it said %s", r.err)
	}
}
