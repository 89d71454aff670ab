//go:build linux && cgo

package gpu

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// launchBytes and launchJobs bound one launch of a dispatcher. A GPU needs
	// much longer for that many bytes than a launch takes.
	launchBytes = 64 << 20
	launchJobs  = 32 << 10
	// gatherTime is how long a launch waits for more jobs while the GPU is
	// busy. On an otherwise idle process the timer may sleep for 1 ms instead.
	gatherTime = 200 * time.Microsecond
	// lanes is how many launches of a dispatcher may be in flight: the GPU
	// executes one while the next is gathered.
	lanes = 2
)

// dispatcher digests pieces for all users of one GPU. Jobs that several users
// submit at the same time share a launch. Each lane of a dispatcher gathers
// jobs, launches, and waits for the GPU; meanwhile another lane gathers.
//
// An error of the GPU is returned to every user with jobs in that launch.
// Otherwise users do not affect each other: jobs are checked when they are
// submitted, and users wait for their own copies.
type dispatcher struct {
	own   *Context // kept.own
	lanes [lanes]*lane
	// gathering is held by the lane that gathers. changed has a token after a
	// change that this lane may be waiting for.
	gathering, changed chan struct{}
	stop               chan struct{} // closed to end the lanes
	running            sync.WaitGroup

	mu      sync.Mutex
	waiting []*Submitter // submitters with jobs not yet in a lane, in the order of their turns
	callers int          // how many goroutines may submit concurrently
	asked   int          // requests that have not ended
	busy    int          // lanes that launch or wait for the GPU
}

// newDispatcher creates everything that the launches need, and starts the
// lanes. own is the Context of the GPU's kept, which outlives the dispatcher.
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

// idleDispatcher returns a dispatcher whose lanes do not run and have no
// resources on the GPU yet.
func idleDispatcher(own *Context) *dispatcher {
	d := &dispatcher{own: own, gathering: make(chan struct{}, 1), changed: make(chan struct{}, 1), stop: make(chan struct{})}
	for i := range d.lanes {
		d.lanes[i] = &lane{d: d}
	}
	return d
}

// close ends the dispatcher, which must have no users. If the GPU hangs, lanes
// may be blocked: they are abandoned.
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

// tell wakes the gathering lane.
func (d *dispatcher) tell() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// lane makes launches, one after another. Only its own goroutine uses it.
type lane struct {
	d      *dispatcher
	stream *Stream
	hasher *Hasher
	done   *Mark // recorded in the stream after a launch
	// recorded is true if done belongs to the launch in flight. The other lane reads it.
	recorded atomic.Bool

	// The launch that is being gathered or is in flight: its jobs, their bytes,
	// and the requests that they belong to.
	jobs  []HashJob
	bytes int
	parts []part
}

// part is a range of a request's jobs in a launch.
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

// gather fills a launch, in turn with the other lane. If the GPU is idle, it
// returns with the jobs that there are. While the GPU works for the other lane,
// the launch waits for more, until it is full, gatherTime has passed, or no
// more jobs can arrive. gather returns false when the lane must end.
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
			// Nobody waits for these jobs, otherwise their memory could be
			// freed while a launch uses it.
			d.mu.Lock()
			defer d.mu.Unlock()
			l.endPartsLocked(ErrClosed)
			return false
		}
	}
}

// take adds waiting jobs to the launch, as far as there is room. It reports
// whether the launch should begin, and if so counts the lane as busy.
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

// worksLocked reports whether a lane keeps the GPU busy, or is about to. A
// goroutine that waits for a launch may notice its end late, so worksLocked
// checks for itself, without the driver.
func (d *dispatcher) worksLocked() bool {
	done := 0
	for _, l := range d.lanes {
		if l.recorded.Load() && l.done.word != nil && l.done.word.written() {
			done++
		}
	}
	return d.busy > done
}

// digest runs the launch on the GPU and waits for it. After an error no part of
// the launch is in flight, unless the driver is lost.
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

// finish returns the digests, or the error, to the requests that the jobs belong to.
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

// endPartsLocked removes the launch's jobs. A request whose last jobs these were ends.
func (l *lane) endPartsLocked(err error) {
	for _, p := range l.parts {
		p.of.parts--
		if err != nil {
			p.of.withdrawLocked(err)
		}
		p.of.endLocked()
	}
	clear(l.jobs) // they refer to memory that users may close
	clear(l.parts)
}
