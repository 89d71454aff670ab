//go:build linux && cgo

package gpu

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// launchBytes and launchJobs bound one launch of a dispatcher. So many bytes keep a GPU
	// busy for much longer than a launch takes.
	launchBytes = 64 << 20
	launchJobs  = 32 << 10
	// gatherTime is for how long a launch waits for more jobs, while the GPU has others. A
	// process that has nothing else to do may sleep for 1 ms instead.
	gatherTime = 200 * time.Microsecond
	// lanes is how many launches of a dispatcher may be under way: the GPU works for one
	// while the next is gathered.
	lanes = 2
)

// dispatcher digests for all users of one GPU. What they submit at the same time shares a
// launch. A part of it, a lane, gathers jobs, launches, and waits for the GPU; meanwhile the
// other lane gathers.
//
// An error of the GPU goes to every user with jobs in that launch. Nothing else of a user
// reaches the others: jobs are checked before, and users wait for their own copies.
type dispatcher struct {
	own   *Context // that of the GPU's kept
	lanes [lanes]*lane
	// gathering is held by the lane that gathers. changed has a token after a change that
	// this lane may wait for.
	gathering, changed chan struct{}
	stop               chan struct{} // closed to end the lanes
	running            sync.WaitGroup

	mu      sync.Mutex
	waiting []*Submitter // those with jobs that no lane has, in the order of their turns
	callers int          // how many goroutines may submit at once
	asked   int          // requests that are not over
	busy    int          // lanes that launch, or wait for the GPU
}

// newDispatcher makes all that the launches need, and starts the lanes. own is the Context
// of the GPU's kept, which outlives the dispatcher.
func newDispatcher(own *Context) (*dispatcher, error) {
	d := idleDispatcher(own)
	for _, l := range d.lanes {
		if err := l.open(); err != nil {
			return nil, errors.Join(err, d.closeLanes())
		}
	}
	for _, l := range d.lanes {
		d.running.Go(l.run)
	}
	return d, nil
}

// idleDispatcher is a dispatcher whose lanes do not run, and have nothing of the GPU yet.
func idleDispatcher(own *Context) *dispatcher {
	d := &dispatcher{own: own, gathering: make(chan struct{}, 1), changed: make(chan struct{}, 1), stop: make(chan struct{})}
	for i := range d.lanes {
		d.lanes[i] = &lane{d: d}
	}
	return d
}

// close ends the dispatcher, which nobody uses any more. A GPU that hangs may hold its lanes:
// these are then left behind.
func (d *dispatcher) close() error {
	close(d.stop)
	if !d.own.awaits("end a dispatcher", d.running.Wait) {
		return nil
	}
	return d.closeLanes()
}

func (d *dispatcher) closeLanes() error {
	var errs []error
	for _, l := range d.lanes {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// tell wakes the lane that gathers.
func (d *dispatcher) tell() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// lane makes launches, one after the other. Only its own goroutine uses it.
type lane struct {
	d      *dispatcher
	stream *Stream
	hasher *Hasher
	done   *Mark // in the stream behind a launch
	// recorded says that done is that of the launch under way. The other lane reads it.
	recorded atomic.Bool

	// The launch that is gathered, or under way: its jobs, their bytes, and whose they are.
	jobs  []HashJob
	bytes int
	parts []part
}

// part is a stretch of a request's jobs in a launch.
type part struct {
	of       *request
	from, to int
}

func (l *lane) open() (err error) {
	if l.stream, err = l.d.own.NewStream(); err != nil {
		return err
	}
	if l.hasher, err = l.d.own.NewHasher(launchJobs, launchBytes); err != nil {
		return err
	}
	l.done, err = l.d.own.NewWordMark()
	return err
}

func (l *lane) close() error {
	var errs []error
	if l.stream != nil {
		errs = append(errs, l.stream.Drain(), l.stream.Close())
	}
	if l.hasher != nil {
		errs = append(errs, l.hasher.Close())
	}
	if l.done != nil {
		errs = append(errs, l.done.Close())
	}
	return errors.Join(errs...)
}

func (l *lane) run() {
	for l.gather() {
		l.finish(l.digest())
	}
}

// gather fills a launch in turn with the other lane. A GPU that has nothing to do gets what
// is there. While it works for the other lane, the launch waits for more, until it is full,
// or gatherTime is over, or nothing more can come. gather is false when the lane is to end.
func (l *lane) gather() bool {
	d := l.d
	select {
	case d.gathering <- struct{}{}:
	case <-d.stop:
		return false
	}
	defer func() { <-d.gathering }()
	l.jobs, l.bytes, l.parts = l.jobs[:0], 0, l.parts[:0]
	var late <-chan time.Time
	for isLate := false; ; {
		if l.take(isLate) {
			return true
		}
		if len(l.jobs) > 0 && late == nil {
			late = time.After(gatherTime)
		}
		select {
		case <-d.changed:
		case <-late:
			isLate = true
		case <-d.stop:
			// Nobody waits for these jobs, or their memory could go while a launch has them.
			d.mu.Lock()
			defer d.mu.Unlock()
			l.endPartsLocked(ErrClosed)
			return false
		}
	}
}

// take adds the jobs that wait to the launch, as far as there is room. It reports whether the
// launch is to begin, and then counts the lane as busy.
func (l *lane) take(isLate bool) bool {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	isFull := d.fillLocked(l)
	if len(l.jobs) == 0 || !isFull && !isLate && d.worksLocked() && d.asked < d.callers {
		return false
	}
	d.busy++
	return true
}

// worksLocked reports whether a lane has the GPU work, or is about to. Whoever waits for a
// launch may sleep a while after its end: so it looks for that itself, without the driver.
func (d *dispatcher) worksLocked() bool {
	done := 0
	for _, l := range d.lanes {
		if l.recorded.Load() && l.done.word != nil && l.done.word.written() {
			done++
		}
	}
	return d.busy > done
}

// digest has the GPU carry out the launch, and waits for it. After an error nothing of the
// launch is under way, unless the driver is lost.
func (l *lane) digest() error {
	// Every job was checked when it was submitted.
	if err := l.hasher.begin(l.stream, l.jobs); err != nil {
		return err
	}
	if err := l.stream.Record(l.done); err != nil {
		return errors.Join(err, l.stream.Drain())
	}
	l.recorded.Store(true)
	return l.done.Wait()
}

// finish gives the digests, or why there are none, to those whose jobs these were.
func (l *lane) finish(err error) {
	job := 0
	for _, p := range l.parts {
		for i := p.from; i < p.to && err == nil; i++ {
			p.of.digests[i] = l.hasher.Digest(job)
			job++
		}
	}
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.busy--
	l.recorded.Store(false)
	l.endPartsLocked(err)
	d.tell()
}

// endPartsLocked takes the launch's jobs from it. A request that has no others is over.
func (l *lane) endPartsLocked(err error) {
	for _, p := range l.parts {
		p.of.parts--
		if err != nil {
			p.of.withdrawLocked(err)
		}
		p.of.endLocked()
	}
	clear(l.jobs) // they name memory of users that may go
	clear(l.parts)
}
