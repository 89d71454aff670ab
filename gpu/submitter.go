//go:build linux && cgo

package gpu

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// A turn is the amount that a launch takes from one user before it continues
// with the next.
const (
	turnBytes = 4 << 20
	turnJobs  = launchJobs / (launchBytes / turnBytes)
)

// Submitter is a user's access to the dispatcher of a GPU, which all users of
// the GPU share: the dispatcher digests in one launch what several of them
// submit at the same time. A Submitter is safe for concurrent use.
type Submitter struct {
	ctx     *Context
	d       *dispatcher
	callers int
	pending sync.WaitGroup // requests that have not ended

	// d.mu guards these.
	requests []*request // with jobs not yet in a lane
	debt     int        // bytes that its jobs had beyond its turns, and that later turns have not paid for
	closed   bool
}

// request is what one call of Digest submits.
type request struct {
	from    *Submitter
	jobs    []HashJob
	digests [][32]byte
	over    chan struct{} // closed when all jobs are digested, or will not be
	err     error         // valid once over is closed

	// d.mu guards these.
	taken int // how many jobs lanes have taken so far; all of them once the request is withdrawn
	parts int // launches in flight that have some of its jobs
}

// NewSubmitter joins the dispatcher of the GPU. callers is the maximum number
// of goroutines in Digest at the same time: a launch does not wait for more
// jobs than these can submit.
//
// The first Submitter of a GPU creates the dispatcher, which is kept as long as
// the kernels. It takes 12 MiB of device memory, and 4.3 MiB of pinned host
// memory. Errors and blocking are those of NewHasher.
func (c *Context) NewSubmitter(callers int) (*Submitter, error) {
	if err := c.canDigest(); err != nil {
		return nil, err
	}
	if err := c.begin("submitters"); err != nil {
		return nil, err
	}
	d, err := c.kept.dispatch(c.life)
	if err != nil {
		c.end("submitters")
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.callers += callers
	return &Submitter{ctx: c, d: d, callers: callers}, nil
}

// Digest digests all jobs, and stores the digest of job i in digests[i]; there
// are at least as many digests as jobs. It blocks until that is done, or the
// Context's life ends. Work queued earlier for the memory must be done.
//
// If a job violates a rule of HashJob, refers to memory of another GPU, or has more than
// 64 MiB, Digest returns an error and submits nothing. After any other error the GPU may
// still read the memory, and digests may still be stored, until Close.
func (s *Submitter) Digest(jobs []HashJob, digests [][32]byte) error {
	if len(digests) < len(jobs) {
		return fmt.Errorf("digest: %d jobs, and room for %d digests", len(jobs), len(digests))
	}
	for i := range jobs {
		if err := jobs[i].checkIn(s.ctx); err != nil {
			return fmt.Errorf("digest: job %d: %w", i, err)
		}
		if jobs[i].Len > launchBytes {
			return fmt.Errorf("digest: job %d: more than %d bytes", i, launchBytes)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	r := &request{from: s, jobs: jobs, digests: digests, over: make(chan struct{})}
	if err := s.d.submit(r); err != nil {
		return err
	}
	select {
	case <-r.over:
		return r.err
	case <-s.ctx.life.Done():
		err := fmt.Errorf("digest on GPU %d: %w", s.ctx.device.Index, context.Cause(s.ctx.life))
		s.d.withdraw(r, err)
		return err
	}
}

// Close withdraws the jobs that are in no launch yet, and waits for the launches that have
// jobs of this Submitter: then the memory of the jobs may be closed. It blocks for 5 s at
// most; then the GPU counts as hung. If a GPU hangs, it does not wait, and nothing is
// freed any more. Closing again only waits.
func (s *Submitter) Close() error {
	// Wait even if the driver is lost: a lane may be about to launch these jobs
	// on a GPU that still works.
	wasLost := s.ctx.Lost() != nil
	if !s.leave() {
		s.ctx.awaits("wait for digests", s.pending.Wait)
		return nil
	}
	defer s.ctx.end("submitters")
	if s.ctx.awaits("wait for digests", s.pending.Wait) || wasLost {
		return nil
	}
	return s.ctx.endedWait(hangError("wait for digests", s.ctx.device.Index, closePatience))
}

// leave refuses further jobs. It reports whether it is the first to do so.
func (s *Submitter) leave() bool {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.closed {
		return false
	}
	s.closed = true
	s.d.callers -= s.callers
	for _, r := range slices.Clone(s.requests) {
		r.withdrawLocked(ErrClosed)
		r.endLocked()
	}
	s.d.tell()
	return true
}

// submit appends a request to the others of its Submitter.
func (d *dispatcher) submit(r *request) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := r.from
	if s.closed {
		return fmt.Errorf("digest: %w", ErrClosed)
	}
	s.pending.Add(1)
	d.asked++
	s.requests = append(s.requests, r)
	if len(s.requests) == 1 {
		d.waiting = append(d.waiting, s)
	}
	d.tell()
	return nil
}

// fillLocked adds waiting jobs that fit to a launch, one turn of each user
// after another. It reports whether the launch is full: then the user whose
// turn it was is the first of the next launch. A user whose next job exceeds a
// turn and does not fit also goes first in the next launch, but this launch
// continues with the others. Such a job puts its user in debt, to be paid with
// its next turns, so that the others get as many bytes while they wait.
func (d *dispatcher) fillLocked(l *lane) (isFull bool) {
	var large []*Submitter // their next jobs do not fit, but those of others may
	for len(d.waiting) > 0 && !l.isFull() {
		s := d.waiting[0]
		r := s.requests[0]
		next := r.jobs[r.taken].Len
		if s.debt <= 0 && !l.hasRoom(next) && next <= turnBytes {
			isFull = true
			break
		}
		d.waiting = slices.Delete(d.waiting, 0, 1)
		switch {
		case s.debt > 0:
			s.debt -= turnBytes
		case !l.hasRoom(next):
			large = append(large, s)
			continue
		default:
			s.debt += max(0, l.takeTurn(r)-turnBytes)
			if r.taken == len(r.jobs) {
				s.requests = slices.Delete(s.requests, 0, 1)
			}
		}
		if len(s.requests) > 0 {
			d.waiting = append(d.waiting, s)
		}
	}
	d.waiting = append(large, d.waiting...)
	return isFull || l.isFull() || len(large) > 0 && !l.hasRoom(turnBytes)
}

func (l *lane) isFull() bool { return len(l.jobs) == launchJobs || l.bytes == launchBytes }

// hasRoom reports whether one more job with the given number of bytes fits.
func (l *lane) hasRoom(bytes int) bool {
	return len(l.jobs) < launchJobs && bytes <= launchBytes-l.bytes
}

// takeTurn adds the next jobs of a request to the launch, which has room for at least one.
// It returns the number of bytes added, which exceeds a turn only if it is a single job.
func (l *lane) takeTurn(r *request) (turn int) {
	from := r.taken
	for _, j := range r.jobs[from:] {
		taken := r.taken - from
		if !l.hasRoom(j.Len) || taken == turnJobs || taken > 0 && turn+j.Len > turnBytes {
			break
		}
		r.taken++
		turn += j.Len
		l.bytes += j.Len
		l.jobs = append(l.jobs, j)
	}
	l.parts = append(l.parts, part{r, from, r.taken})
	r.parts++
	return turn
}

// withdraw ends the jobs of a request that are not yet in a lane, with the reason err.
func (d *dispatcher) withdraw(r *request, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-r.over: // it has just ended
		return
	default:
	}
	r.withdrawLocked(err)
	r.endLocked() // this starts no lane, because more jobs can arrive than before
}

// withdrawLocked is withdraw without ending the request. The first reason is kept.
func (r *request) withdrawLocked(err error) {
	if r.err == nil {
		r.err = err
	}
	s := r.from
	if i := slices.Index(s.requests, r); i >= 0 {
		s.requests = slices.Delete(s.requests, i, i+1)
		if len(s.requests) == 0 {
			s.d.waiting = slices.DeleteFunc(s.d.waiting, func(w *Submitter) bool { return w == s })
		}
	}
	r.taken = len(r.jobs)
}

// endLocked ends a request that has no waiting jobs and none in flight.
func (r *request) endLocked() {
	if r.taken < len(r.jobs) || r.parts > 0 {
		return
	}
	r.from.d.asked--
	close(r.over)
	r.from.pending.Done()
}
