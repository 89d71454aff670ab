package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

// overShell runs the program with a local shell instead of ssh, and this test binary as
// the remote gdrcp.
func overShell(t *testing.T, args ...string) result {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return gdrcp(t, append([]string{"--rsh", `sh -c 'shift; exec sh -c "$*"' rsh`, "--remote-path", beMain + "=1 " + exe}, args...)...)
}

func TestFarEnd(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	makeFiles(t, here, map[string]string{"t/a": "one", "t/b/c": "two"})
	overShell(t, "-r", here+"/t", "h:"+there).want(t, exitOK)
	if got := listFiles(t, there); got["t/a"] != "one" || got["t/b/c"] != "two" {
		t.Errorf("pushed %v", got)
	}
	overShell(t, "h:"+there+"/t/*", "h:"+there+"/t/b/*", here+"/").want(t, exitPartial) // a directory without -r
	overShell(t, "h:"+there+"/t/?", "h:"+there+"/t/b/c", here+"/", "-r").want(t, exitOK)
	if got := listFiles(t, here); got["a"] != "one" || got["c"] != "two" || got["b/c"] != "two" {
		t.Errorf("pulled %v", got)
	}
	overShell(t, "--max-memory", "6M", "--chunk-size", "2M", "--qps", "3", "h:"+there+"/t/a", here+"/small").want(t, exitOK)
	overShell(t, "--slots", "256", "-v", here+"/small", "h:"+there+"/").want(t, exitOK)
	r := overShell(t, "h:"+there+"/none", here+"/").want(t, exitError)
	if strings.Count(r.err, "\n") != 1 {
		t.Errorf("it wrote %q", r.err)
	}
}

// The error for a pattern with too many matches names the pattern, for every kind of
// copy.
func TestPatternOfTooManyNames(t *testing.T) {
	s := startServer(t)
	for i := range 300 {
		makeFiles(t, s.root, map[string]string{fmt.Sprintf("many/%050d", i): ""})
	}
	const why = "it matches more names than one copy takes (about 8 KiB): copy the directory with --include and --exclude, or name the files by --files-from"
	for _, c := range []struct{ host, pattern string }{{"h", s.root + "/many/*"}, {s.addr, "/many/*"}} {
		source := c.host + ":" + c.pattern
		if c.host == s.addr {
			source = s.url("many/*")
		}
		r := overShell(t, source, t.TempDir()).want(t, exitUsage)
		if want := fmt.Sprintf("gdrcp: %s: pattern %q: %s\n", c.host, c.pattern, why); r.err != want {
			t.Errorf("%s: it wrote %q, want %q", source, r.err, want)
		}
	}
	overShell(t, "-q", "h:"+s.root+"/many/*[0-4]0", t.TempDir()).want(t, exitOK)
}

// ~ means the home directory only if the user wrote it. A remote process may return it
// as the match of a pattern, honestly or not.
func TestOfferedPathsOfTilde(t *testing.T) {
	for _, c := range []struct{ asked, answer, want string }{
		{"*", "~", "~"},
		{"*/x", "~/x", "~/x"},
		{"[~]/x", "~/x", "~/x"},
		{"~*/x", "~/x", "~/x"},
		{"./*", "./~", "./~"},
		{"~", "~", "/h/."},
		{"~/", "~/", "/h/."},
		{"~/*", "~/~", "/h/~"},
		{"~me/x", "~me/x", "~me/x"},
	} {
		if err := remote.Believe(c.asked, []string{c.answer}); err != nil {
			t.Fatal(err)
		}
		got := offeredPaths([]string{"a", c.asked}, &remote.Offer{Home: "/h", Expanded: [][]string{{"a"}, {c.answer}}})
		if len(got) != 2 || got[0] != "a" || got[1] != c.want {
			t.Errorf("%q, answered by %q, is %q, want %q", c.asked, c.answer, got, c.want)
		}
	}
}

// A directory that is really named ~ is copied under its name, without files of the
// home directory.
func TestPatternThatMatchesTilde(t *testing.T) {
	home, there, here := t.TempDir(), t.TempDir(), t.TempDir()
	makeFiles(t, home, map[string]string{".bashrc": "mine"})
	makeFiles(t, there, map[string]string{"~/x": "one"})
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rsh := `sh -c 'cd ` + there + ` && export HOME=` + home + ` && shift && exec sh -c "$*"' rsh`
	makeFiles(t, here, map[string]string{"pulled/": "", "relayed/": ""})
	for _, to := range []string{here + "/pulled", "i:" + here + "/relayed"} {
		gdrcp(t, "--rsh", rsh, "--remote-path", beMain+"=1 "+exe, "-r", "h:*", to).want(t, exitOK)
	}
	got := listFiles(t, here)
	if len(got) != 2 || got["pulled/~/x"] != "one" || got["relayed/~/x"] != "one" {
		t.Errorf("copied %v", got)
	}
}

// linkToShell starts a remote process through a local shell, without the command line.
func linkToShell(t *testing.T) *remote.Link {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := &remote.Origin{
		Rsh: []string{"sh", "-c", `shift; exec sh -c "$*"`, "rsh"}, Host: "h", RemotePath: beMain + "=1 " + exe,
		Protocol: xfer.ProtocolVersion, Version: "test", Stderr: io.Discard,
	}
	link, err := o.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { link.Close() })
	return link
}

// If the remote process reports why it cannot continue, a copy fails with that reason,
// whatever the local error was.
func TestFarEndThatGivesUp(t *testing.T) {
	link := linkToShell(t)
	f := &farEnd{Link: link, where: sshHost{host: "h"}}
	gone := fmt.Errorf("session: %w", rdma.ErrDisconnected)
	if got := f.reason(t.Context(), gone); got != gone || f.whyGone() != nil {
		t.Errorf("while it serves: %v, %v", got, f.whyGone())
	}
	lost := &xfer.RemoteError{Peer: "127.0.0.1:7", Class: xfer.ClassStopped, Text: "connection lost"}
	if got := f.reason(t.Context(), lost); got == nil || got.Error() != "h: connection lost" {
		t.Errorf("while it serves, it tells of a loss: %v", got)
	}
	stands, cancel := context.WithCancelCause(t.Context())
	f.alive = stands
	cancel(&remote.RefusedError{Text: "accept on [::]:1: the device is gone"})
	for _, seen := range []error{gone, lost, context.Canceled, context.Cause(stands)} {
		if got := f.reason(t.Context(), seen); got == nil || got.Error() != "h: accept on [::]:1: the device is gone" {
			t.Errorf("%v became %v", seen, got)
		}
	}
}

func TestRelay(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	makeFiles(t, a, map[string]string{"x.bin": "one", "y.bin": "two", "z": "three"})
	r := overShell(t, "--json", "--hash", "crc32c", "h:"+a+"/*.bin", "i:"+b).want(t, exitOK)
	if got := listFiles(t, b); len(got) != 2 || got["x.bin"] != "one" || got["y.bin"] != "two" {
		t.Errorf("copied %v", got)
	}
	if s := r.event(t, "summary"); s["hash"] != "crc32c" || s["files"] != 2.0 {
		t.Errorf("%v", s)
	}
	if err := os.Chmod(filepath.Join(a, "z"), 0); err != nil {
		t.Fatal(err)
	}
	code := exitPartial
	if os.Getuid() == 0 {
		code = exitOK // root reads everything
	}
	overShell(t, "-r", "h:"+a+"/.", "i:"+b).want(t, code)
	r = overShell(t, "h:"+a+"/none", "i:"+b).want(t, exitError)
	if want := fmt.Sprintf("gdrcp: h: \"%s/none\": no such file or directory\n", a); r.err != want {
		t.Errorf("it wrote %q, want %q", r.err, want)
	}
	r = overShell(t, "h:"+a+"/x.bin", "i:"+b+"/none/").want(t, exitError)
	if want := fmt.Sprintf("gdrcp: i: copy to \"%s/none/\": no such directory\n", b); r.err != want {
		t.Errorf("it wrote %q, want %q", r.err, want)
	}
	r = overShell(t, "--json", "h:"+a+"/none", "i:"+b).want(t, exitError)
	if e := r.event(t, "error"); e["exit_code"] != 1.0 {
		t.Errorf("%v", e)
	}
}
