package ssh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhyNot: any reason that a remote process cannot be started is printed in one
// line, with exit code 1 and a hint.
func TestWhyNot(t *testing.T) {
	t.Parallel()
	bare, old := newHost(t, "bare", noProgram), newHost(t, "old", script(`echo "gdrcp-far-end: protocol 1, version v0.0.1"; cat >/dev/null`))
	older, noisy := newHost(t, "older", script("echo 'a copy needs SRC... and DST' >&2; exit 2")), newHost(t, "noisy", script(`echo Welcome to node2; exec "$gdrcp" "$@"`))
	here := newClient(t, bare, old, older, noisy)
	makeFile(t, filepath.Join(here.dir, "f"), 1000)
	for _, c := range []struct{ host, says string }{
		{"down", "ssh cannot reach or log in to down"},
		{"stranger-to-bare", "ssh cannot reach or log in to stranger-to-bare"},
		{"bare", "--bootstrap"},
		{"old", "--bootstrap"},
		{"old", "v0.0.1 on old"},
		{"older", "--bootstrap"},
		{"noisy", `the remote shell printed "Welcome to node2" before gdrcp started: login scripts`},
	} {
		for _, args := range [][]string{{"f", c.host + ":/tmp/never"}, {c.host + ":/etc/passwd", "never"}} {
			r := here.run(t, args...).want(t, 1).says(t, c.says)
			if lines := r.ours(); len(lines) != 1 {
				t.Errorf("%s: %d lines: %q", c.host, len(lines), lines)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(here.dir, "never")); err == nil {
		t.Error("something was made of a copy that was not")
	}
}

func TestBootstrap(t *testing.T) {
	t.Parallel()
	bare, old := newHost(t, "bare", noProgram), newHost(t, "old", script(`echo "gdrcp-far-end: protocol 1, version v0.0.1"; cat >/dev/null`))
	here := newClient(t, bare, old)
	f := filepath.Join(here.dir, "f")
	makeFile(t, f, 1000)
	there := t.TempDir()
	for _, h := range []*host{bare, old} {
		target := filepath.Join(there, h.name)
		here.run(t, "--bootstrap", "f", h.name+":"+target).want(t, 0).says(t, "gdrcp: copying gdrcp to the cache directory of "+h.name).lacks(t, "not found")
		same(t, f, target)
		cached := filepath.Join(h.cache, "gdrcp")
		entries, err := os.ReadDir(cached)
		if err != nil || len(entries) != 1 {
			t.Fatalf("in the cache of %s: %v, %v", h.name, entries, err)
		}
		same(t, binary, filepath.Join(cached, entries[0].Name()))
		here.run(t, "--bootstrap", h.name+":"+target, "back").want(t, 0).lacks(t, "copying gdrcp").lacks(t, "not found")
		// Another program of that name is not run.
		evil := filepath.Join(there, "evil-"+h.name)
		write(t, filepath.Join(cached, entries[0].Name()), "#!/bin/sh\ntouch "+evil+"\n")
		here.run(t, "--bootstrap", h.name+":"+target, "back").want(t, 0).says(t, "copying gdrcp")
		if _, err := os.Lstat(evil); err == nil {
			t.Errorf("%s ran what somebody had put into the cache", h.name)
		}
	}
}

// TestBootstrapWhereOthersWrite: one line names the directory, and a hint follows.
func TestBootstrapWhereOthersWrite(t *testing.T) {
	t.Parallel()
	bare := newHost(t, "bare", noProgram)
	here := newClient(t, bare)
	makeFile(t, filepath.Join(here.dir, "f"), 1000)
	target := filepath.Join(t.TempDir(), "f")
	here.run(t, "--bootstrap", "f", "bare:"+target).want(t, 0)
	if err := os.Chmod(bare.home, 0o775); err != nil {
		t.Fatal(err)
	}
	r := here.run(t, "--bootstrap", "f", "bare:"+target+"2").want(t, 1).says(t, "gdrcp: "+bare.home+" on bare belongs to another user, or others may write to it").says(t, "chmod go-w")
	if lines := strings.Count(r.err, "\n"); lines != 1 {
		t.Errorf("%d lines: %s", lines, r.err)
	}
	if _, err := os.Lstat(target + "2"); err == nil {
		t.Error("it was copied all the same")
	}
}
