//go:build linux && cgo

package gpu

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// aside returns a dispatcher without a GPU whose lanes do not run: tests
// execute their steps.
func aside() *dispatcher {
	d := idleDispatcher(nil)
	for _, l := range d.lanes {
		l.hasher = &Hasher{host: make([]byte, launchJobs*digestBytes), jobs: launchJobs}
	}
	return d
}

// asks submits jobs of the given lengths.
func asks(t *testing.T, s *Submitter, lengths ...int) *request {
	t.Helper()
	jobs := make([]HashJob, len(lengths))
	for i, n := range lengths {
		jobs[i] = HashJob{Len: n, Counter: uint64(i)}
	}
	return asksFor(t, s, jobs...)
}

func asksFor(t *testing.T, s *Submitter, jobs ...HashJob) *request {
	t.Helper()
	r := &request{from: s, jobs: jobs, digests: make([][32]byte, len(jobs)), over: make(chan struct{})}
	if err := s.d.submit(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// launched lets a lane gather, and returns how many bytes of each request the launch has.
func launched(t *testing.T, l *lane) map[*request]int {
	t.Helper()
	if !l.gather() {
		t.Fatal("the lane has ended")
	}
	got, job, sum := map[*request]int{}, 0, 0
	for _, p := range l.parts {
		for i := p.from; i < p.to; i++ {
			if l.jobs[job] != p.of.jobs[i] {
				t.Fatalf("job %d of the launch is not job %d of its request", job, i)
			}
			got[p.of] += l.jobs[job].Len
			sum += l.jobs[job].Len
			job++
		}
	}
	if job != len(l.jobs) || job > launchJobs || sum != l.bytes || sum > launchBytes {
		t.Fatalf("a launch of %d jobs, %d of them somebody's, and of %d bytes, counted as %d", len(l.jobs), job, sum, l.bytes)
	}
	return got
}

// repeat returns n times a length.
func repeat(n, length int) []int {
	return slices.Repeat([]int{length}, n)
}

func isOver(r *request) bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// No user fills the launches while others wait, however much it has submitted before them.
func TestLaunchTakesInTurn(t *testing.T) {
	d := aside()
	greedy, modest, tiny := &Submitter{d: d}, &Submitter{d: d}, &Submitter{d: d}
	first, second := asks(t, greedy, repeat(64, 1<<20)...), asks(t, greedy, repeat(64, 1<<20)...)
	third, fourth := asks(t, modest, repeat(48, 1<<20)...), asks(t, tiny, 100)
	got := launched(t, d.lanes[0])
	if got[first] < 28<<20 || got[second] != 0 || got[third] < 28<<20 || got[fourth] != 100 {
		t.Errorf("%d, %d, %d and %d bytes, want half for each of the two that have as much", got[first], got[second], got[third], got[fourth])
	}
	d.lanes[0].finish(nil)
	if isOver(first) || isOver(second) || isOver(third) || !isOver(fourth) {
		t.Error("a request is over before all of it is, or not when it is")
	}
	for i := 0; len(d.waiting) > 0 && i < 2; i++ {
		launched(t, d.lanes[1])
		d.lanes[1].finish(nil)
	}
	if !isOver(first) || !isOver(second) || !isOver(third) || d.asked != 0 || d.busy != 0 {
		t.Errorf("%d requests are left, %d lanes", d.asked, d.busy)
	}
}

// A job that does not fit is the first of the next launch, and does not exclude
// others from this one.
func TestLargestJobWaitsForOneLaunch(t *testing.T) {
	d := aside()
	small, large := &Submitter{d: d}, &Submitter{d: d}
	first := asks(t, small, repeat(100, 1<<20)...)
	whole := asks(t, large, launchBytes)
	if got := launched(t, d.lanes[0]); got[first] != launchBytes || got[whole] != 0 {
		t.Errorf("%d and %d bytes", got[first], got[whole])
	}
	if got := launched(t, d.lanes[1]); got[first] != 0 || got[whole] != launchBytes {
		t.Errorf("in the next launch %d and %d bytes", got[first], got[whole])
	}
}

// A user that submits only jobs of the maximum size leaves room for others.
func TestLargestJobsLeaveRoom(t *testing.T) {
	d := aside()
	greedy, victim := &Submitter{d: d}, &Submitter{d: d}
	large := asks(t, greedy, repeat(100, launchBytes)...)
	r := asks(t, victim, repeat(64, 1<<20)...)
	for n := 0; !isOver(r); n++ {
		if n == 4 {
			t.Fatal("not over after 4 launches")
		}
		launched(t, d.lanes[n%lanes])
		d.lanes[n%lanes].finish(nil)
	}
	if large.taken == 0 {
		t.Error("the other starves")
	}
}

// Users that wait get about as many bytes each, however large their jobs are.
func TestLargeJobsPay(t *testing.T) {
	for _, size := range []int{5 << 20, 33 << 20, launchBytes - 100, launchBytes} {
		d := aside()
		requests, sums := make([]*request, 4), make([]int, 4)
		for i := range requests {
			n, length := 4000, 300<<10
			if i == 1 {
				n, length = 200, size
			}
			requests[i] = asks(t, &Submitter{d: d}, repeat(n, length)...)
		}
		for n := range 40 {
			got := launched(t, d.lanes[n%lanes])
			for i, r := range requests {
				sums[i] += got[r]
			}
			d.lanes[n%lanes].finish(nil)
		}
		for i, sum := range sums {
			if sum < sums[1]-2*launchBytes || sum > sums[1]+2*launchBytes {
				t.Errorf("jobs of %d bytes: user %d had %d bytes, that with large jobs %d", size, i, sum, sums[1])
			}
		}
	}
}

// Jobs without bytes are bounded by their number.
func TestLaunchOfManyJobs(t *testing.T) {
	d := aside()
	s := &Submitter{d: d}
	r := asks(t, s, repeat(launchJobs+5, 0)...)
	for _, want := range []int{launchJobs, 5} {
		launched(t, d.lanes[0])
		if n := len(d.lanes[0].jobs); n != want {
			t.Errorf("a launch of %d jobs, want %d", n, want)
		}
		d.lanes[0].finish(nil)
	}
	if !isOver(r) || r.err != nil {
		t.Errorf("over: %t, %v", isOver(r), r.err)
	}
}

// Each job is in one launch, and its request ends after the last of them,
// whichever lane finishes first, and whichever user leaves meanwhile.
func TestLaunchesOfManyUsers(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 200 {
		d := aside()
		users, bytes, asked := make([]*Submitter, 1+rng.IntN(5)), map[*request]int{}, map[*request]int{}
		for i := range users {
			users[i] = &Submitter{d: d}
		}
		for range 1 + rng.IntN(12) {
			lengths := make([]int, 1+rng.IntN(100))
			for i := range lengths {
				lengths[i] = rng.IntN(1<<rng.IntN(25) + 1)
			}
			r := asks(t, users[rng.IntN(len(users))], lengths...)
			for _, n := range lengths {
				asked[r] += n
			}
		}
		gone := map[*request]bool{}
		for len(d.waiting) > 0 {
			for _, l := range d.lanes {
				if len(d.waiting) == 0 {
					continue
				}
				for r, n := range launched(t, l) {
					if isOver(r) {
						t.Fatalf("round %d: a launch has jobs of a request that is over", round)
					}
					bytes[r] += n
				}
			}
			for r := range asked {
				if rng.IntN(20) == 0 {
					gone[r] = gone[r] || !isOver(r)
					d.withdraw(r, errors.New("gone"))
				}
			}
			for _, i := range rng.Perm(lanes) {
				if d.lanes[i].bytes > 0 || len(d.lanes[i].parts) > 0 {
					finishOnce(d.lanes[i])
				}
			}
		}
		for r := range asked {
			if !isOver(r) || (r.err != nil) != gone[r] || !gone[r] && bytes[r] != asked[r] {
				t.Fatalf("round %d: over: %t, %v, %d of %d bytes", round, isOver(r), r.err, bytes[r], asked[r])
			}
		}
		if d.asked != 0 || d.busy != 0 {
			t.Fatalf("round %d: %d requests, %d lanes", round, d.asked, d.busy)
		}
	}
}

// finishOnce ends a launch that has been gathered.
func finishOnce(l *lane) {
	l.finish(nil)
	l.parts, l.bytes = l.parts[:0], 0
}

// An idle GPU gets a launch immediately. A busy one gets the next when it has
// finished the previous one, when no more jobs can arrive, for example because
// a user leaves, and otherwise after gatherTime.
func TestLaunchWaits(t *testing.T) {
	for what, happens := range map[string]func(d *dispatcher, leaves *Submitter){
		"the GPU is done":     func(d *dispatcher, _ *Submitter) { d.lanes[0].finish(nil) },
		"a user leaves":       func(_ *dispatcher, leaves *Submitter) { leaves.leave() },
		"the last submits":    func(d *dispatcher, leaves *Submitter) { asks(t, leaves, 1) },
		"gatherTime is over":  func(*dispatcher, *Submitter) { time.Sleep(gatherTime) },
		"the GPU has written": func(d *dispatcher, s *Submitter) { d.lanes[0].done.word.last.Store(0); d.tell() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := aside()
				d.callers = 3
				s, leaves := &Submitter{d: d}, &Submitter{d: d, callers: 1}
				start := time.Now()
				asks(t, s, 1)
				launched(t, d.lanes[0])
				if took := time.Since(start); took > 0 {
					t.Errorf("a GPU with nothing to do waited for %v", took)
				}
				d.lanes[0].done = &Mark{word: &word{at: new(uint32)}}
				d.lanes[0].done.word.last.Store(1)
				d.lanes[0].recorded.Store(true)
				asks(t, s, 1)
				gathered := gathers(d.lanes[1])
				synctest.Wait()
				if len(gathered) > 0 {
					t.Error("a launch does not wait for more")
				}
				happens(d, leaves)
				synctest.Wait()
				if len(gathered) == 0 {
					t.Error("a launch waits in vain")
				}
				<-gathered
			})
		})
	}
}

// An error of the GPU is returned to all users with jobs in the launch, and the
// remaining jobs of the same calls are withdrawn.
func TestLaunchFailsForAll(t *testing.T) {
	c := useFake(t, "badlaunch")
	d := idleDispatcher(c.kept.own)
	l := d.lanes[0]
	if _, err := c.kept.hash(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	m := alloc(t, c, 4<<20)
	job := HashJob{Memory: m, Len: 100}
	first, second, third := &Submitter{d: d}, &Submitter{d: d}, &Submitter{d: d}
	one, two := asksFor(t, first, job), asksFor(t, second, job, job)
	large := make([]HashJob, 20)
	for i := range large {
		large[i] = HashJob{Memory: m, Len: 4 << 20}
	}
	some := asksFor(t, third, large...)
	launched(t, l)
	err := l.digest()
	if !isCode(err, 701) {
		t.Fatalf("launch: %v", err)
	}
	l.finish(err)
	for i, r := range []*request{one, two, some} {
		if !isOver(r) || !isCode(r.err, 701) {
			t.Errorf("request %d is over: %t, %v", i, isOver(r), r.err)
		}
	}
	if d.asked != 0 || d.busy != 0 || len(d.waiting) != 0 {
		t.Errorf("%d requests are left, %d users wait", d.asked, len(d.waiting))
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
}

// If the driver is lost, for example by an error of another GPU, a lane may still launch
// the jobs that it has: Close waits for that, and so does a concurrent Close.
func TestCloseWaitsThoughLost(t *testing.T) {
	drv := openFake(t, "gpus=2")
	c, err := drv.Use(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, "context", c)
	d := aside()
	goes, stays := &Submitter{ctx: c, d: d}, &Submitter{ctx: c, d: d}
	if err := c.begin("submitters"); err != nil {
		t.Fatal(err)
	}
	mine, other := asks(t, goes, 100), asks(t, stays, 100)
	launched(t, d.lanes[0])
	drv.lose(&Error{GPU: 1, Code: 719})
	closed := make(chan error, 2)
	for range cap(closed) {
		go func() { closed <- goes.Close() }()
	}
	select {
	case err := <-closed:
		t.Fatalf("closed while a lane has a job: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	d.lanes[0].finish(drv.Lost())
	for range cap(closed) {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
	if !isOver(mine) || !isOver(other) {
		t.Error("a request of the launch is not over")
	}
}

// A lane that ends while it gathers returns an error to the users whose jobs it has.
func TestLaneEndsWhileItGathers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := aside()
		d.callers, d.busy = 2, 1
		r := asks(t, &Submitter{d: d}, 100)
		gathered := gathers(d.lanes[0])
		synctest.Wait()
		close(d.stop)
		if <-gathered || !isOver(r) || !errors.Is(r.err, ErrClosed) || d.asked != 0 || d.busy != 1 {
			t.Errorf("over: %t, %v; %d requests are left", isOver(r), r.err, d.asked)
		}
	})
}

// gathers lets a lane gather in a goroutine, and reports when it is ready to launch.
func gathers(l *lane) <-chan bool {
	gathered := make(chan bool, 1)
	go func() { gathered <- l.gather() }()
	return gathered
}

// An error of a kernel is returned to all users, whatever their launch.
func TestKernelFailsForAll(t *testing.T) {
	d := openFake(t, "badkernel", "late=5", "gpus=2")
	users := make([]*submitting, 3)
	errs := make(chan error, len(users))
	for i := range users {
		users[i] = submits(t, d, t.Context(), 1)
	}
	for _, u := range users {
		go func() { errs <- u.digest(u.job(1)) }()
	}
	for range users {
		if err := <-errs; !isCode(err, 719) {
			t.Error(err)
		}
	}
	wantLost(t, d, d.Lost())
}

// A dispatcher is created once, for the first user that submits something, and
// kept as long as the kernels.
func TestDispatcherIsKept(t *testing.T) {
	d, told := made(t, "launches")
	var before *dispatcher
	for range 3 {
		c, err := d.Use(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.NewSubmitter(2)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err == nil || !strings.Contains(err.Error(), "submitters (1)") {
			t.Errorf("close a context with a submitter: %v", err)
		}
		if before != nil && s.d != before {
			t.Error("another dispatcher")
		}
		before = s.d
		closes(t, "submitter", s)
		closes(t, "context", c)
		if s.d.callers != 0 {
			t.Errorf("%d callers when all have gone", s.d.callers)
		}
	}
	closes(t, "driver", d)
	before.running.Wait() // otherwise this test hangs
	if got, want := told(), "context 0 module 0 end 0"; got != want {
		t.Errorf("made %q, want %q", got, want)
	}
}
