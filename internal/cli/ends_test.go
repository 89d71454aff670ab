package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// An error about an entry names its end, and an error about an entry in a directory
// that could not be created has the entry's own name.
func TestErrorsNameEntryAndEnd(t *testing.T) {
	s := startServer(t, "-v")
	local := t.TempDir()
	for _, dir := range []string{local, s.root} {
		makeFiles(t, dir, map[string]string{"t/d/x": "X", "t/d/sub/y": "Y", "t/ok": "O", "into/t/d": "a file"})
		if err := unix.Mkfifo(dir+"/t/fifo", 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := " (at " + s.addr + ")"
	for _, c := range []struct {
		name     string
		args     []string
		src, dst string
		source   string // the end, as in events
	}{
		{"push", []string{"-r", local + "/t", s.url("into/")}, " (here)", there, "local"},
		{"pull", []string{"-r", s.url("t"), local + "/into/"}, there, " (here)", "remote"},
		{"on this machine", []string{"-r", local + "/t", local + "/into/"}, " (at the source)", " (at the destination)", "local"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := gdrcp(t, c.args...).want(t, exitPartial)
			const why = `open directory "d": not a directory`
			wantLines(t, r.err, `gdrcp: read "fifo": special file skipped: fifo`+c.src, "gdrcp: "+why+c.dst,
				`gdrcp: make directory "d/sub": `+why+c.dst, `gdrcp: create "d/x": `+why+c.dst, `gdrcp: create "d/sub/y": `+why+c.dst)
			if n := strings.Count(r.err, "\n"); n != 6 {
				t.Errorf("%d lines for 5 entries and the last one:\n%s", n, r.err)
			}
			r = gdrcp(t, append([]string{"--json"}, c.args...)...).want(t, exitPartial)
			ends := map[bool]string{true: c.source, false: map[string]string{"local": "remote", "remote": "local"}[c.source]}
			for _, e := range r.events(t) {
				if path, ok := e["path"].(string); ok && e["event"] == "file" && e["end"] != ends[path == "fifo"] {
					t.Errorf("%v, want the end %s", e, ends[path == "fifo"])
				}
			}
		})
	}
	for _, end := range []string{`\(at the client\)`, `\(here\)`} { // the client does not wait for them
		waitFor(t, s.errs, regexp.MustCompile(`read "fifo": special file skipped: fifo `+end))
	}
}

// The error of a copy between two other hosts names them and keeps its class.
func TestErrorsOfRelayedCopiesNameHosts(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.2:36923")
	run := &remote.Run{From: "h1", To: "h2", Addresses: []remote.Address{{Transport: "tcp", Addr: at}}}
	remoteError := &xfer.RemoteError{Peer: at.String(), Class: xfer.ClassUnsupported, Text: "no GPU"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "stat", Path: "x", Err: unix.ENOENT}, `h1: stat "x": no such file or directory`},
		{remoteError, "h2: no GPU"},
		{fmt.Errorf("%v: %w", at, rdma.ErrDisconnected), "h1: h2: " + rdma.ErrDisconnected.Error()},
		{errors.New("h1 does not reach h2"), "h1 does not reach h2"},
		{errors.New("h1 does not reach h2: 192.0.2.2:36923: connection refused"), "h1 does not reach h2: 192.0.2.2:36923: connection refused"},
		{errors.Join(errors.New("gone"), errors.New("gone")), "h1: gone"},
		{errors.Join(rdma.ErrClosed, remoteError), "h1: " + rdma.ErrClosed.Error() + "; h2: no GPU"},
	} {
		got := nameHosts(c.err, run)
		if lineOf(got) != c.want || codeOf(got) != codeOf(c.err) || !errors.Is(got, c.err) {
			t.Errorf("%q with code %d, want %q", lineOf(got), codeOf(got), c.want)
		}
	}
}

// The user of a copy between two other hosts is at neither end.
func TestEndsOfCopies(t *testing.T) {
	far := &plan{far: &sshHost{host: "node2"}}
	for _, c := range []struct {
		got  endNames
		want endNames
	}{
		{(&plan{}).ends(&remote.Run{From: "a", To: "b"}), endNames{"at a", "at b"}},
		{far.ends(nil), endNames{"here", "at node2"}},
		{(&plan{endpoint: xfer.Endpoint{Host: "::1", Port: 7473}}).ends(nil), endNames{"here", "at [::1]:7473"}},
	} {
		if c.got != c.want {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}
