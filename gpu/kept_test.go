//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
)

// made opens a fake that logs the creation of contexts and modules, and a
// function that returns the log on one line.
func made(t *testing.T, words ...string) (d *Driver, told func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	d = openFake(t, append(words, "log="+log)...)
	return d, func() string {
		b, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return strings.Join(strings.Fields(string(b)), " ")
	}
}

// gate blocks the creation of objects on GPU 0 until it is opened.
type gate struct {
	t    *testing.T
	path string
}

func newGate(t *testing.T) gate {
	t.Helper()
	g := gate{t, filepath.Join(t.TempDir(), "gate")}
	t.Cleanup(g.open) // even for a thread that a test left there
	return g
}

// reached waits until something is blocked at the gate.
func (g gate) reached() {
	g.t.Helper()
	soon(g.t, "what is to be held up", func() bool {
		_, err := os.Stat(g.path + ".asked")
		return err == nil
	})
}

func (g gate) open() {
	if err := os.WriteFile(g.path, nil, 0o600); err != nil {
		g.t.Error(err)
	}
}

// hashes opens a GPU, creates a Hasher there, and closes both.
func hashes(life context.Context, d *Driver, index int) error {
	c, err := d.Use(life, index)
	if err != nil {
		return err
	}
	h, err := c.NewHasher(1, 1<<20)
	if err == nil {
		err = h.Close()
	}
	return errors.Join(err, c.Close())
}

// soon waits for a condition.
func soon(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// Successive users find the context and kernels as the previous ones left them,
// until the driver is closed.
func TestGPUIsKept(t *testing.T) {
	d, told := made(t, "gpus=2")
	for range 3 {
		if err := errors.Join(hashes(t.Context(), d, 1), hashes(t.Context(), d, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := told(), "context 1 module 1 context 0 module 0"; got != want {
		t.Errorf("made %q, want %q", got, want)
	}
	closes(t, "driver", d)
	if got, want := told(), "context 1 module 1 context 0 module 0 end 0 end 1"; got != want {
		t.Errorf("in the end %q, want %q", got, want)
	}
}

// Some time after the last user a GPU's objects are freed, and created again for the next.
func TestIdleGPUIsGivenBack(t *testing.T) {
	d, told := made(t)
	d.idleTime = 0 // but objects that are created for a user are kept for it
	for round := range 2 {
		if err := hashes(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		soon(t, "the end of an idle GPU", func() bool { return strings.Count(told(), "end 0") == round+1 })
	}
	c, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if got, want := told(), "context 0 module 0 end 0 context 0 module 0 end 0 context 0"; got != want {
		t.Errorf("with a user %q, want %q", got, want)
	}
	roundTrip(t, c, 4096)
	closes(t, "context", c)
}

// A new user resets the idle time, whoever came before.
func TestUserEndsIdleTime(t *testing.T) { synctest.Test(t, testUserEndsIdleTime) }

func testUserEndsIdleTime(t *testing.T) {
	d, told := made(t)
	if err := hashes(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	c, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * d.idleTime)
	if got, want := told(), "context 0 module 0"; got != want {
		t.Errorf("with a user %q, want %q", got, want)
	}
	closes(t, "context", c)
}

// Concurrent users load the kernels once.
func TestUsersShareOneLoad(t *testing.T) {
	d, told := made(t, "slowopen=50", "slowload=100")
	var group errgroup.Group
	for range 8 {
		group.Go(func() error { return hashes(t.Context(), d, 0) })
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	if got, want := told(), "context 0 module 0"; got != want {
		t.Errorf("made %q, want %q", got, want)
	}
}

// If kernels load slowly on one GPU, users of another do not wait.
func TestLoadsDoNotQueue(t *testing.T) {
	g := newGate(t)
	d, _ := made(t, "gpus=2", "loadgate="+g.path)
	loaded := make(chan error, 1)
	go func() { loaded <- hashes(context.Background(), d, 0) }()
	g.reached()
	if err := hashes(t.Context(), d, 1); err != nil { // otherwise it waits for ever
		t.Error(err)
	}
	g.open()
	if err := <-loaded; err != nil {
		t.Error(err)
	}
}

// A user that leaves while an object is created does not wait for it. That does
// not count as a hang, and the next user gets the object.
func TestWhoGoesWaitsForNothing(t *testing.T) {
	for word, before := range map[string]string{"opengate=": "", "loadgate=": "context 0"} {
		t.Run(word, func(t *testing.T) {
			g := newGate(t)
			d, told := made(t, word+g.path)
			life, end := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			gone := make(chan error, 1)
			go func() { gone <- hashes(life, d, 0) }()
			g.reached()
			end(enough)
			if err := <-gone; !errors.Is(err, enough) { // otherwise it waits for ever
				t.Errorf("who has gone: %v", err)
			}
			if got := told(); got != before {
				t.Errorf("made %q before that, want %q", got, before)
			}
			g.open()
			if err := errors.Join(hashes(t.Context(), d, 0), d.Lost()); err != nil {
				t.Error(err)
			}
			if got, want := told(), "context 0 module 0"; got != want {
				t.Errorf("made %q, want %q", got, want)
			}
		})
	}
}

// goes is a user that leaves while kernels are loaded.
func goes(t *testing.T, d *Driver, g gate) {
	t.Helper()
	life, end := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- hashes(life, d, 0) }()
	g.reached()
	end()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("who has gone: %v", err)
	}
}

// If the driver is closed while an object is created for a user that has left,
// Close frees that, too.
func TestDriverCloseWaitsForWhatIsMade(t *testing.T) {
	g := newGate(t)
	d, told := made(t, "loadgate="+g.path)
	goes(t, d, g)
	time.AfterFunc(100*time.Millisecond, g.open) // while Close waits, if it does
	closes(t, "driver", d)
	if got, want := told(), "context 0 module 0 end 0"; got != want {
		t.Errorf("in the end %q, want %q", got, want)
	}
}

// But not for ever: then the GPU counts as hung, and what is in progress is abandoned.
func TestDriverCloseHasAnEnd(t *testing.T) {
	g := newGate(t)
	d, told := made(t, "loadgate="+g.path)
	goes(t, d, g)
	closes(t, "driver", d) // otherwise it waits for ever
	if got, want := told(), "context 0"; got != want {
		t.Errorf("made %q, want %q", got, want)
	}
	t.Cleanup(func() { // the abandoned thread writes to the log
		g.open()
		soon(t, "what was left there", func() bool { return told() == "context 0 module 0" })
	})
	if d.Lost() == nil {
		t.Error("nothing says that the GPU hangs")
	}
}

// What could not be created is retried for the next user.
func TestFailedLoadIsTriedAgain(t *testing.T) {
	d, told := made(t, "noload=221")
	for range 2 {
		if err := hashes(t.Context(), d, 0); !isCode(err, 221) || !errors.Is(err, ErrUnsupported) {
			t.Errorf("load: %v", err)
		}
	}
	if got, want := told(), "context 0"; got != want {
		t.Errorf("made %q, want %q", got, want)
	}
}

// If the driver is lost nothing is kept.
func TestLostGPUIsNotKept(t *testing.T) {
	d, told := made(t, "badkernel")
	c, err := d.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closes(t, "context", c)
		soon(t, "the end of a lost GPU", func() bool { return told() == "context 0 module 0 end 0" })
	})
	b := newHashBench(t, c, 1, 100)
	err = b.hasher.Begin(b.stream, []HashJob{{Memory: b.load(make([]byte, 100)), Len: 100}})
	if err = errors.Join(err, b.stream.Wait()); !isCode(err, 719) || d.Lost() == nil {
		t.Errorf("wait: %v; lost: %v", err, d.Lost())
	}
}
