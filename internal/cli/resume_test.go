package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// cutOff runs the program until bytes of its copy have arrived, interrupts it, and
// returns its output. The first event arrives after a sixth of the copy, so most of its
// time remains for the interruption.
func cutOff(t *testing.T, args ...string) result {
	t.Helper()
	p, out, errs := newProgram()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() { ended <- p.run(ctx, append([]string{"gdrcp", "--json", "--bwlimit", "4M"}, args...)) }()
	waitFor(t, out, regexp.MustCompile(`"event":"progress","bytes":[1-9]\d{6}`))
	cancel()
	return result{<-ended, out.String(), errs.String()}
}

// The hint of an interrupted copy is a command that resumes it. If the tree became DST,
// the same command would make a second tree in DST.
func TestHintOfACopyThatWasCutOff(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	big := map[string]string{"dir/big": strings.Repeat("0123456789abcdef", 24<<16)}
	makeFiles(t, dir, big)
	makeFiles(t, s.root+"/from", big)
	const same = "the same command again"
	with := func(source string) string {
		return fmt.Sprintf("the command again with %s/. in place of %s", source, source)
	}
	pushes := 0
	for _, c := range []struct {
		name     string
		options  string
		src, dst string
		made     string // what the copy creates
		again    string
	}{
		{"a tree that becomes DST", "-a", dir + "/dir", s.url("new"), s.root + "/new", with(dir + "/dir")},
		{"a tree that becomes DST here", "-a", s.url("from/dir"), dir + "/new", dir + "/new", with(s.url("from/dir"))},
		{"a pattern that becomes DST here", "-a", s.url("from/d?r"), dir + "/new", dir + "/new", with(s.url("from/d?r"))},
		{"a tree in DST", "-a", dir + "/dir", s.url(""), s.root + "/dir", same},
		{"the contents of a tree", "-a", dir + "/dir/.", s.url("new"), s.root + "/new", same},
		{"a file", "-t", dir + "/dir/big", s.url("new"), s.root + "/new", same},
		{"a tree that appears whole", "-a --atomic-dir", dir + "/dir", s.url("new"), s.root + "/new", same},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			args := append(strings.Fields(c.options), c.src, c.dst)
			r := cutOff(t, args...).want(t, exitInterrupted)
			if want := "gdrcp: interrupted\nhint: run " + c.again + ": it goes on where this copy was cut off\n"; r.err != want {
				t.Fatalf("it wrote %q, want %q", r.err, want)
			}
			if strings.HasPrefix(c.dst, "rdma:") {
				// The server keeps the partial data until it has ended the session.
				pushes++
				waitFor(t, s.errs, regexp.MustCompile(fmt.Sprintf(`(?s)(push "[^\n]*: the client was interrupted\n.*){%d}`, pushes)))
			}
			if c.again != same {
				args[slices.Index(args, c.src)] += "/."
			}
			r = gdrcp(t, append([]string{"--json"}, args...)...).want(t, exitOK)
			if n := r.event(t, "summary")["resumed_bytes"].(float64); n == 0 {
				t.Error("the second copy began anew")
			}
			if _, err := os.Stat(c.made + "/dir"); err == nil {
				t.Error("the second copy made another tree in the first one's")
			}
			if err := os.RemoveAll(c.made); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Even if no file can be resumed because all are small, the hint says how to copy to
// the same place, because the first copy has created DST.
func TestHintOfATreeOfSmallFiles(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	small := map[string]string{}
	for i := range 24 {
		small[fmt.Sprintf("dir/%d", i)] = strings.Repeat("0123456789abcdef", 1<<16)
	}
	makeFiles(t, dir, small)
	makeFiles(t, s.root+"/from", small)
	for name, c := range map[string]struct{ src, dst, hint string }{
		"push":        {dir + "/dir", s.url("new"), "hint: run the command again with " + dir + "/dir/. in place of " + dir + "/dir: it copies to where this copy did\n"},
		"pull":        {s.url("from/dir"), dir + "/new", "hint: run the command again with " + s.url("from/dir/.") + " in place of " + s.url("from/dir") + ": it copies to where this copy did\n"},
		"to the same": {dir + "/dir/.", s.url("other"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := cutOff(t, "-a", c.src, c.dst).want(t, exitInterrupted)
			if want := "gdrcp: interrupted\n" + c.hint; r.err != want {
				t.Errorf("it wrote %q, want %q", r.err, want)
			}
		})
	}
}

// A copy that is interrupted before anything has arrived may still have created DST. A
// refused copy has not.
func TestHintBeforeAnythingHasArrived(t *testing.T) {
	const moved = "run the command again with dir/. in place of dir: it copies to where this copy did"
	becomesDST, inDST := &xfer.Place{Name: "dir"}, &xfer.Place{Name: "dir", Inside: true}
	for _, c := range []struct {
		name  string
		err   error
		place *xfer.Place
		want  string
	}{
		{"interrupted", context.Canceled, becomesDST, moved},
		{"lost", fmt.Errorf("session: %w", xfer.ErrPeerSilent), becomesDST, moved},
		{"at a standstill", fmt.Errorf("%w for 2s", xfer.ErrStalled), becomesDST, moved},
		{"interrupted in DST", context.Canceled, inDST, ""},
		{"interrupted before that", context.Canceled, nil, ""},
		{"refused", &fs.PathError{Op: "write to", Path: "new", Err: fs.ErrPermission}, becomesDST, ""},
		{"without room", fileset.ErrNoSpace, becomesDST, ""},
	} {
		run := &copyRun{program: &program{}, tally: &xfer.Tally{}}
		run.place.Store(c.place)
		got, cut := "", (*resumableError)(nil)
		if errors.As(run.withHowToGoOn(c.err, []string{"dir", "new"}), &cut) {
			got = cut.hint()
		}
		if got != c.want {
			t.Errorf("%s: hint %q, want %q", c.name, got, c.want)
		}
	}
}
