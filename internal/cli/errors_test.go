package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

func TestExplain(t *testing.T) {
	peer := netip.MustParseAddrPort("10.7.0.2:7474")
	op := func(hint string, err error) error {
		return &rdma.OpError{Op: "connect to", Peer: peer, Hint: hint, Err: err}
	}
	for _, c := range []struct {
		err         error
		interrupted bool
		want        failure
	}{
		{err: errors.New("it broke"), want: failure{"it broke", "", exitError}},
		{err: &exitCodeError{exitPartial}, want: failure{"", "", exitPartial}},
		{err: &exitCodeError{exitIntegrity}, interrupted: true, want: failure{"", "", exitIntegrity}},
		{err: context.Canceled, interrupted: true, want: failure{"interrupted", "", exitInterrupted}},
		{err: args.UsageErrorf("no %s", "way"), want: failure{"no way", "", exitUsage}},
		{err: fmt.Errorf("%w: bad ring", xfer.ErrUsage), want: failure{"bad ring", "", exitUsage}},
		{err: fmt.Errorf("%w: piece 3", xfer.ErrIntegrity), want: failure{"integrity check failed: piece 3", "", exitIntegrity}},
		{err: fmt.Errorf("line 3: %w", manifest.ErrTruncated), want: failure{"line 3: manifest is truncated", "", exitIntegrity}},
		{err: fmt.Errorf("%w: %w", xfer.ErrProtocol, manifest.ErrPath), want: failure{"protocol error: invalid path", "", exitError}},
		{err: fmt.Errorf("verbs is required: %w: no", rdma.ErrUnsupported), want: failure{"verbs is required: not supported here: no", "", exitUnsupported}},
		{
			err:  &rdma.ProbeError{Reason: rdma.NoLibrary, Detail: "libibverbs.so.1: not found", Hint: "apt install libibverbs1"},
			want: failure{"libibverbs.so.1: not found", "apt install libibverbs1", exitUnsupported},
		},
		{
			err:  &xfer.RemoteError{Peer: "h", Class: xfer.ClassError, Text: `write "a": no space left on device`},
			want: failure{`h: write "a": no space left on device`, "make room at the destination and copy again", exitError},
		},
		{
			err:  &resumableError{&xfer.RemoteError{Peer: "h", Class: xfer.ClassError, Text: "disk quota exceeded"}, "that", true},
			want: failure{"h: disk quota exceeded", "make room at the destination and run that: it goes on where this copy was cut off", exitError},
		},
		{err: op("check the MTU", errors.New("timed out")), want: failure{"connect to 10.7.0.2:7474: timed out", "check the MTU", exitError}},
		{
			err: op("", syscall.ECONNREFUSED),
			want: failure{"connect to 10.7.0.2:7474: connection refused",
				"is gdrcp serve running there? It listens on port 7473 unless told otherwise", exitError},
		},
		{
			err:  op("", rdma.ErrNotGdrcp),
			want: failure{"connect to 10.7.0.2:7474: the peer does not speak gdrcp's protocol", "something else listens on that port: check host and port", exitError},
		},
		{
			err:  &rdma.RejectedError{Peer: peer, Code: rdma.RejectVersion},
			want: failure{"10.7.0.2:7474 refused the connection: it speaks another protocol version", "install the same version of gdrcp at both ends", exitError},
		},
		{
			err:  &rdma.RejectedError{Peer: peer, Code: rdma.RejectBusy},
			want: failure{"10.7.0.2:7474 refused the connection: it runs as many sessions as it may", "try again later, or give the server a higher --max-sessions, or its access file a higher max-sessions for the key", exitError},
		},
		{err: &xfer.RemoteError{Peer: "h:1", Class: xfer.ClassIntegrity, Text: "no"}, want: failure{"h:1: no", "", exitIntegrity}},
		{err: &xfer.RemoteError{Peer: "h:1", Class: xfer.ClassStopped, Text: "stopped"}, want: failure{"h:1: stopped", "", exitError}},
		{err: &fs.PathError{Op: "open", Path: "a\nb", Err: syscall.EACCES}, want: failure{`open "a\nb": permission denied`, "", exitError}},
		{err: errors.New("a\x1b[2J\nb"), want: failure{`a\x1b[2J\nb`, "", exitError}},
		{err: errors.Join(errors.New("one"), errors.Join(nil, errors.New("two")), errors.New("one")), want: failure{"one; two", "", exitError}},
		{err: &resumableError{errors.New("lost"), "that", true}, want: failure{"lost", "run that: it goes on where this copy was cut off", exitError}},
		{err: &resumableError{errors.New("lost"), "that", false}, want: failure{"lost", "run that: it copies to where this copy did", exitError}},
		{
			err:  &resumableError{fileset.ErrNoSpace, "that", true},
			want: failure{fileset.ErrNoSpace.Error(), "make room at the destination and run that: it goes on where this copy was cut off", exitError},
		},
		{err: &hintedError{errors.New("no"), "yes"}, want: failure{"no", "yes", exitError}},
	} {
		if got := explain(c.err, c.interrupted); got != c.want {
			t.Errorf("%v:\n got %+v\nwant %+v", c.err, got, c.want)
		}
	}
}

// An error that has a hint has exactly one.
func TestHints(t *testing.T) {
	for _, err := range []error{
		rdma.ErrLockedMemory, rdma.ErrNotGdrcp, xfer.ErrPeerSilent, fileset.ErrNoSpace, syscall.EADDRINUSE, syscall.ECONNREFUSED, context.DeadlineExceeded,
		&rdma.RejectedError{Code: rdma.RejectResources},
	} {
		f := explain(fmt.Errorf("do this: %w", err), false)
		if f.hint == "" || strings.Contains(f.hint, "\n") || f.code != exitError {
			t.Errorf("%v: %+v", err, f)
		}
	}
}

func TestExitCodesOfSummaries(t *testing.T) {
	for _, c := range []struct {
		s    xfer.Summary
		want int
	}{
		{xfer.Summary{Verified: true}, exitOK},
		{xfer.Summary{Verified: true, Skipped: 1}, exitOK},
		{xfer.Summary{Verified: true, Failed: 1}, exitPartial},
		{xfer.Summary{Verified: true, Changed: 1}, exitPartial},
		{xfer.Summary{Verified: true, NotDeleted: true}, exitPartial},
		{xfer.Summary{Verified: true, Withheld: true}, exitPartial},
		{xfer.Summary{Verified: true, Unkept: []xfer.Unkept{{}}}, exitPartial},
		{xfer.Summary{Verified: true, Corrupt: 1, Failed: 1}, exitIntegrity},
		{xfer.Summary{Verified: true, Missing: 1, Changed: 1}, exitIntegrity},
		{xfer.Summary{}, exitIntegrity},
	} {
		if got := codeOfSummary(&c.s); got != c.want {
			t.Errorf("%+v: %d, want %d", c.s, got, c.want)
		}
	}
}

// An error mentions each address once, and a missing destination is not reported as
// something that is no directory.
func TestCausesAreSaidOnce(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A", "b": "B", "file": "F"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	s := startServer(t)
	gdrcp(t, dir+"/a", s.url("a")).want(t, exitOK)
	for _, c := range []struct{ args, want string }{
		{"--transport tcp " + dir + "/a rdma://127.0.0.1:1/a", "gdrcp: connect 127.0.0.1:1 via tcp: connection refused"},
		{"serve --transport tcp --root " + dir + " --listen " + taken, "gdrcp: listen on " + taken + " via tcp: address already in use"},
		{dir + "/a " + s.url("nodir/"), s.addr + `: copy to "/nodir/": no such directory`},
		{dir + "/a " + dir + "/b " + s.url("nodir"), s.addr + `: copy several sources to "/nodir": no such directory`},
		{s.url("a") + " " + dir + "/nodir/", `nodir/": no such directory`},
		{s.url("a") + " " + dir + "/file/", `file/": not a directory`},
	} {
		r := gdrcp(t, strings.Fields(c.args)...).want(t, exitError)
		if !strings.Contains(r.err, c.want+"\n") {
			t.Errorf("gdrcp %s wrote\n%swant\n%s", c.args, r.err, c.want)
		}
	}
	r := gdrcp(t, "--transport", "tcp", dir+"/a", "rdma://no-such-host.invalid/a").want(t, exitError)
	if strings.Count(r.err, "no-such-host.invalid") != 1 || strings.Contains(r.err, "lookup") {
		t.Errorf("it wrote %q", r.err)
	}
}
