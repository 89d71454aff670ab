package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
)

// awaitFile waits until a script has created a file.
func awaitFile(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(rdmatest.Stretch(leaveTimeout)); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s was not made", filepath.Base(file))
		}
	}
}

// A remote shell command that is aborted may restore the terminal before it
// ends, as ssh does when it asks for a password.
func TestAbortLetsTheCommandTidyUp(t *testing.T) {
	dir := t.TempDir()
	o, _ := testOrigin(t, "")
	o.Rsh = []string{"sh", "-c", `trap 'echo >"$0/restored"; exit 1' TERM; echo >"$0/ready"; while :; do sleep 0.1; done`, dir}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := o.Connect(ctx)
		ended <- err
	}()
	awaitFile(t, dir+"/ready")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "/restored"); err != nil {
		t.Error("it was killed at once")
	}
}

// A command that ignores SIGTERM is killed all the same.
func TestAbortOfAStubbornCommand(t *testing.T) {
	dir := t.TempDir()
	command := Command{Rsh: []string{"sh", "-c", `trap "" TERM; echo >"$0/ready"; while :; do sleep 0.1; done`, dir}, Host: "here"}
	p, err := command.start(os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	awaitFile(t, dir+"/ready")
	p.abort()
	if text := p.ending(); text != "signal: killed" {
		t.Errorf("it ended by %q", text)
	}
}

// lingering connects to a far end through a remote shell command that continues after the
// far end has ended, as an ssh master does for other sessions, until the file stop exists.
func lingering(t *testing.T) (link *Link, stop string) {
	t.Helper()
	dir := t.TempDir()
	o, stderr := testOrigin(t, farEndEnv+"=5 "+self(t))
	o.Rsh = []string{"sh", "-c", `shift; sh -c "$*"; while ! [ -e "$0/stop" ]; do sleep 0.1; done`, dir}
	link, err := o.Connect(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if _, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)}); err != nil {
		t.Fatal(err)
	}
	return link, dir + "/stop"
}

func TestCloseLeavesACommandThatGoesOn(t *testing.T) {
	link, stop := lingering(t)
	link.Leave()
	if err := link.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-link.process.ended:
		t.Fatalf("it was ended: %s", link.process.ending())
	default:
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	select {
	case <-link.process.ended:
	case <-time.After(rdmatest.Stretch(leaveTimeout)):
		t.Fatal("nobody waits for it")
	}
	if code := link.process.code(); code != 0 {
		t.Errorf("it ended with code %d: %s", code, link.process.ending())
	}
}

// If a far end was silent or lost, its connection may hang, and with it an ssh
// master: the next attempt needs another.
func TestCloseEndsTheCommandOfALostFarEnd(t *testing.T) {
	for _, silent := range []bool{false, true} {
		link, _ := lingering(t)
		link.Talk.gaveUp.Store(silent)
		if err := link.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-link.process.ended:
		default:
			t.Errorf("silent %v: it goes on", silent)
		}
	}
}
