package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// beHostile makes the test binary a remote process that is asked to copy to another
// host, and that tries what else its key permits there. Its value is the home directory
// there.
const beHostile = "GDRCP_TEST_BE_HOSTILE"

// hostileSource is that process. It prints what it tried and the results, one per line.
// In the middle it makes the requested copy.
func hostileSource(home string) int {
	p := &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, started: time.Now(),
		verbs: noDevices(), tcp: tcp.New(), timeouts: xfer.DefaultTimeouts(),
	}
	mux, talk, err := remote.Answer(context.Background(), stdio{p.stdin, p.stdout}, remote.Banner{Protocol: xfer.ProtocolVersion, Version: "hostile"})
	if err != nil {
		return 1
	}
	defer mux.Close()
	wish, err := talk.Asked()
	run := wish.Run
	if err != nil || run == nil {
		return 1
	}
	gone := make(chan error, 1)
	go func() { gone <- talk.Hear(context.Background()) }()
	tell := func(what string, err error) { fmt.Fprintf(talk.Stderr(), "hostile: %s: %v\n", what, err) }
	if err := p.attack(run, home, tell); err != nil {
		tell("preparing", err)
	}
	tell("the copy", exitText(p.runFor(context.Background(), talk, run)))
	tell("the copy again", exitText(p.runFor(context.Background(), talk, run)))
	_ = talk.End(exitOK)
	<-gone
	return 0
}

func exitText(code int) error {
	if code != exitOK {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// attack uses the key of a run for other copies.
func (p *program) attack(run *remote.Run, home string, tell func(what string, err error)) error {
	loot, err := os.MkdirTemp("", "loot-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(loot)
	mine := filepath.Join(loot, "authorized_keys")
	if err := os.WriteFile(mine, []byte("hostile"), 0o600); err != nil {
		return err
	}
	there := xfer.Endpoint{Host: run.To, Key: run.Key}
	for _, a := range run.Addresses {
		there.Addrs = append(there.Addrs, xfer.ServerAddr(a))
	}
	ctx, c, asked := context.Background(), p.client(), xfer.Options{Recursive: true, Links: true, Timeouts: p.timeouts}
	push := func(what, dst string, source string, change func(*xfer.Options)) {
		o := asked
		change(&o)
		_, err := c.Push(ctx, []string{source}, there, dst, o)
		tell(what, err)
	}
	pull := func(what, path string) {
		_, err := c.Pull(ctx, there, []string{path}, filepath.Join(loot, "stolen"), asked)
		tell(what, err)
		if _, serr := os.Lstat(filepath.Join(loot, "stolen")); serr == nil {
			tell(what, errors.New("it was STOLEN"))
		}
	}
	as := func(*xfer.Options) {}
	push("another path", home+"/.ssh/authorized_keys", mine, as)
	push("another name", run.Dest, mine, as)
	push("deletion", run.Dest, run.Sources[0], func(o *xfer.Options) { o.Delete = true })
	push("attributes", run.Dest, run.Sources[0], func(o *xfer.Options) { o.Xattrs = true })
	pull("another direction", home+"/.ssh/id")
	pull("another direction, all", "/etc/passwd")
	pull("another direction, there", run.Dest)
	_, err = c.BenchLatency(ctx, there, 10, asked)
	tell("a ping", err)
	return nil
}

// In a copy between two hosts, the source host has the key of the destination, too. The
// key permits only the copy that the user asked for, once.
func TestRelayFromAHostileHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	src, home := t.TempDir(), t.TempDir()
	makeFiles(t, src, map[string]string{"data/a": "one", "data/b": "two"})
	makeFiles(t, home, map[string]string{".ssh/id": "secret", ".ssh/authorized_keys": "mine", "dst/old": "kept"})
	rsh := `sh -c 'host=$1; shift; if [ $host = evil ]; then export ` + beHostile + `=` + home + `; fi; exec sh -c "$*"' rsh`
	r := gdrcp(t, "--rsh", rsh, "--remote-path", beMain+"=1 "+exe, "-r", "-l", "evil:"+src+"/data", "good:"+home+"/dst").want(t, exitOK)
	for what, says := range map[string]string{
		"another path": "a push, and not of or to", "another name": `one of other sources, and not of "authorized_keys"`, "deletion": "one that deletes nothing",
		"attributes": "one without -X", "another direction": "a push, and not a pull", "another direction, all": "a push, and not a pull",
		"another direction, there": "a push, and not a pull", "a ping": "a push, and not a ping", "the copy": "<nil>", "the copy again": "exit code 1",
	} {
		begins, found := "hostile: "+what+": ", 0
		for line := range strings.Lines(r.err) {
			if strings.HasPrefix(line, begins) && strings.Contains(line, says) {
				found++
			}
		}
		if found != 1 || strings.Count(r.err, begins) != 1 {
			t.Errorf("%s: %d lines say %q", what, found, says)
		}
	}
	if !strings.Contains(r.err, "this end admits only the copy that it was started for: it has begun already") {
		t.Error("the second copy is not refused in words")
	}
	want := map[string]string{".ssh/id": "secret", ".ssh/authorized_keys": "mine", "dst/old": "kept", "dst/data/a": "one", "dst/data/b": "two"}
	got := listFiles(t, home)
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s has %q, want %q", name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there is %v", got)
	}
	if t.Failed() {
		t.Logf("it wrote:\n%s", r.err)
	}
}
