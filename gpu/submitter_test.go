//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// submitting is a user of the fake's first GPU, with memory that contains data.
type submitting struct {
	*Submitter
	t      testing.TB
	ctx    *Context
	memory *Memory
	data   []byte
}

// submits creates such a user with the given life. Its objects are closed when
// the test ends.
func submits(t testing.TB, d *Driver, life context.Context, callers int) *submitting {
	t.Helper()
	c, err := d.Use(life, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", c) })
	u := &submitting{t: t, ctx: c, data: noise(3 << 20)}
	u.memory = (&hashBench{t: t, ctx: c, stream: newStream(t, c)}).load(u.data)
	if u.Submitter, err = c.NewSubmitter(callers); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "submitter", u.Submitter) })
	return u
}

// job is a piece of the user's memory, of one chunk: a launch of such jobs runs
// one kernel.
func (u *submitting) job(n int) HashJob {
	return HashJob{Memory: u.memory, Offset: n * 1024, Len: 1000 + n, Counter: 1}
}

// digest digests jobs, and compares the results.
func (u *submitting) digest(jobs ...HashJob) error {
	digests := make([][32]byte, len(jobs))
	if err := u.Digest(jobs, digests); err != nil {
		return err
	}
	for i := range jobs {
		if want := onCPU(u.data, &jobs[i]); digests[i] != want {
			u.t.Errorf("job %d of %d, %d bytes at %d: %x, want %x", i, len(jobs), jobs[i].Len, jobs[i].Offset, digests[i], want)
		}
	}
	return nil
}

// is waits until the dispatcher's state satisfies state.
func (u *submitting) is(what string, state func(d *dispatcher) bool) {
	u.t.Helper()
	soon(u.t.(*testing.T), what, func() bool {
		u.d.mu.Lock()
		defer u.d.mu.Unlock()
		return state(u.d)
	})
}

// occupy keeps both lanes waiting for the GPU, on behalf of u.
func (u *submitting) occupy(g *errgroup.Group) {
	u.t.Helper()
	for n := range lanes {
		g.Go(func() error { return u.digest(u.job(n)) })
		u.is("a launch", func(d *dispatcher) bool { return d.busy == n+1 })
	}
}

// holds creates a file for hangfile, which blocks kernels until it is removed.
func holds(t *testing.T) (file string, release func()) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "hold")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release = func() { _ = os.Remove(file) }
	t.Cleanup(release)
	return file, release
}

// Jobs that several users submit while the GPU works for others share one launch.
func TestUsersShareALaunch(t *testing.T) {
	const each = 6
	d, told := made(t, "late=200", "launches")
	first, second := submits(t, d, t.Context(), lanes+each), submits(t, d, t.Context(), each)
	var g errgroup.Group
	first.occupy(&g)
	for n := range each {
		for _, u := range []*submitting{first, second} {
			g.Go(func() error { return u.digest(u.job(n), u.job(n+7)) })
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	// Without sharing there would be at least one more.
	if n := strings.Count(told(), "launch 0"); n != lanes+1 {
		t.Errorf("%d launches, want %d", n, lanes+1)
	}
}

// An idle GPU gets a launch with the jobs that there are, and a busy one gets
// the next launch when no more jobs can arrive, or after a while.
func TestLaunchesDoNotWaitInVain(t *testing.T) {
	for callers, what := range map[int]string{lanes: "nothing more can come", lanes + 1: "more can come"} {
		t.Run(what, func(t *testing.T) {
			file, release := holds(t)
			d, _ := made(t, "hangfile="+file)
			u := submits(t, d, t.Context(), callers)
			var g errgroup.Group
			u.occupy(&g)
			release()
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A user that leaves while a launch has its jobs gets its memory back when the
// launch is done, and the others are not affected.
func TestUserGoesDuringALaunch(t *testing.T) {
	enough := errors.New("enough")
	life, end := context.WithCancelCause(t.Context())
	file, release := holds(t)
	d, told := made(t, "late=200", "hangfile="+file, "launches", "strict")
	goes, stays := submits(t, d, life, 1), submits(t, d, t.Context(), lanes+1)
	var g, gone errgroup.Group
	stays.occupy(&g)
	gone.Go(func() error { return goes.digest(goes.job(1), goes.job(2)) })
	g.Go(func() error { return stays.digest(stays.job(3), stays.job(4)) })
	goes.is("what waits", func(d *dispatcher) bool { return d.asked == lanes+2 })
	release()
	goes.is("a launch with jobs of both", func(d *dispatcher) bool { return len(d.waiting) == 0 && d.asked == 2 && d.busy == 1 })
	if n := strings.Count(told(), "launch 0"); n > lanes+1 {
		t.Fatalf("%d launches: the two do not share one", n)
	}
	end(enough)
	if err := gone.Wait(); !errors.Is(err, enough) {
		t.Errorf("the wait of who has gone: %v", err)
	}
	goes.is("that launch", func(d *dispatcher) bool { return d.asked == 2 })
	closes(t, "submitter of who has gone", goes.Submitter)
	d.kept[0].dispatcher.mu.Lock()
	left := d.kept[0].dispatcher.asked
	d.kept[0].dispatcher.mu.Unlock()
	if left != 0 {
		t.Errorf("%d requests of the launch were under way when it was closed", left)
	}
	closes(t, "memory of who has gone", goes.memory)
	if err := g.Wait(); err != nil {
		t.Errorf("who stays: %v", err)
	}
	if err := stays.digest(stays.job(5)); err != nil {
		t.Errorf("later: %v", err)
	}
}

// Jobs that are in no launch are withdrawn immediately, and never digested.
func TestUserGoesBeforeALaunch(t *testing.T) {
	enough := errors.New("enough")
	life, end := context.WithCancelCause(t.Context())
	file, release := holds(t)
	d, told := made(t, "hangfile="+file, "launches", "strict")
	goes, closed, stays := submits(t, d, life, 2), submits(t, d, t.Context(), 1), submits(t, d, t.Context(), lanes)
	var g, gone, shut errgroup.Group
	stays.occupy(&g)
	for n := range 2 {
		gone.Go(func() error { return goes.digest(goes.job(n)) })
	}
	shut.Go(func() error { return closed.digest(closed.job(1)) })
	goes.is("what waits", func(d *dispatcher) bool { return d.asked == lanes+3 })
	end(enough)
	if err := gone.Wait(); !errors.Is(err, enough) {
		t.Errorf("the wait of who has gone: %v", err)
	}
	closes(t, "submitter of who has gone", goes.Submitter)
	closes(t, "submitter with a request", closed.Submitter)
	if err := shut.Wait(); !errors.Is(err, ErrClosed) {
		t.Errorf("the request of a submitter that is closed: %v", err)
	}
	goes.is("nobody waits", func(d *dispatcher) bool { return len(d.waiting) == 0 })
	release()
	if err := g.Wait(); err != nil {
		t.Errorf("who stays: %v", err)
	}
	if n := strings.Count(told(), "launch 0"); n != lanes {
		t.Errorf("%d launches, want %d", n, lanes)
	}
}

// Users come and go, with jobs of all sizes, and every digest is correct.
func TestManyUsersOfADispatcher(t *testing.T) {
	d := openFake(t, "strict", "late=1")
	var users errgroup.Group
	for n := range 6 {
		life, end := context.WithCancel(t.Context())
		defer end()
		u, rng := submits(t, d, life, 2), rand.New(rand.NewPCG(7, uint64(n)))
		list := make([][]HashJob, 12)
		for i := range list {
			list[i] = make([]HashJob, rng.IntN(40))
			for k := range list[i] {
				size := rng.IntN(1<<rng.IntN(21) + 1)
				list[i][k] = HashJob{Memory: u.memory, Offset: rng.IntN(len(u.data)-size) / 64 * 64, Len: size, Counter: uint64(k)}
			}
		}
		users.Go(func() error {
			var callers errgroup.Group
			for range 2 {
				callers.Go(func() error {
					for i, jobs := range list {
						if n%2 == 1 && i == 5 {
							end()
						}
						if err := u.digest(jobs...); err != nil && !(n%2 == 1 && errors.Is(err, context.Canceled)) {
							return err
						}
					}
					return nil
				})
			}
			return errors.Join(callers.Wait(), u.Close(), u.memory.Close())
		})
	}
	if err := users.Wait(); err != nil {
		t.Error(err)
	}
}

func TestDigestRefuses(t *testing.T) {
	d := openFake(t, "gpus=2")
	u := submits(t, d, t.Context(), 1)
	other, err := d.Use(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "context", other) })
	closed, large := alloc(t, u.ctx, 4096), alloc(t, u.ctx, launchBytes+64)
	closes(t, "memory", closed)
	ok := u.job(1)
	for text, jobs := range map[string][]HashJob{
		"job 1: offset 32":                     {ok, {Memory: u.memory, Offset: 32, Len: 1}},
		"job 0: memory of another context":     {{Memory: alloc(t, other, 4096), Len: 1}},
		"job 0: memory: closed":                {{Memory: closed, Len: 1}},
		"job 1: more than 67108864 bytes":      {ok, {Memory: large, Len: launchBytes + 1}},
		"job 0: no memory":                     {{}},
		"3 jobs, and room for 2 digests":       {ok, ok, ok},
		"1 bytes at offset 3145728 of 3145728": {{Memory: u.memory, Offset: 3 << 20, Len: 1}},
	} {
		if err := u.Digest(jobs, make([][32]byte, 2)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	// The maximum is not an error, nor is no job at all.
	if err := u.Digest([]HashJob{ok, {Memory: large, Len: launchBytes}}, make([][32]byte, 2)); err != nil {
		t.Error(err)
	}
	if err := u.Digest(nil, nil); err != nil {
		t.Error(err)
	}
	// Memory of another user of the same GPU is accepted.
	if err := submits(t, d, t.Context(), 1).Digest([]HashJob{ok}, make([][32]byte, 1)); err != nil {
		t.Error(err)
	}
	closes(t, "submitter", u.Submitter)
	closes(t, "submitter that is closed", u.Submitter)
	if err := u.digest(ok); !errors.Is(err, ErrClosed) {
		t.Errorf("a submitter that is closed: %v", err)
	}
}

func TestNewSubmitterRefuses(t *testing.T) {
	for word, want := range map[string]func(error) bool{
		"cc=6.1":        func(err error) bool { return errors.Is(err, ErrUnsupported) },
		"oom":           func(err error) bool { return errors.Is(err, ErrOutOfMemory) },
		"memory=8":      func(err error) bool { return errors.Is(err, ErrOutOfMemory) }, // for one lane
		"nojit,nocubin": func(err error) bool { return isCode(err, 221) },
	} {
		c := useFake(t, word)
		for range 2 {
			if _, err := c.NewSubmitter(1); !want(err) {
				t.Errorf("%s: %v", word, err)
			}
		}
	}
	life, end := context.WithCancel(t.Context())
	c, err := openFake(t).Use(life, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, "context", c)
	end()
	if s, err := c.NewSubmitter(1); err == nil {
		closes(t, "submitter", s)
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A hung GPU does not block users that leave, and those that remain get an error.
func TestHungLaunch(t *testing.T) {
	d := openFake(t, "hang", "gpus=2")
	life, end := context.WithCancel(t.Context())
	goes, stays := submits(t, d, life, 1), submits(t, d, t.Context(), 1)
	var g, gone errgroup.Group
	gone.Go(func() error { return goes.digest(goes.job(1)) })
	g.Go(func() error { return stays.digest(stays.job(1)) })
	goes.is("launches", func(d *dispatcher) bool { return len(d.waiting) == 0 && d.asked == 2 })
	end()
	if err := gone.Wait(); !errors.Is(err, context.Canceled) {
		t.Errorf("the wait of who has gone: %v", err)
	}
	start := time.Now()
	if err := goes.Close(); err == nil || !strings.Contains(err.Error(), "the GPU hangs") {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > closePatience+3*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := g.Wait(); !isCode(err, 600) {
		t.Errorf("who stays: %v", err)
	}
	wantLost(t, d, d.Lost())
}
