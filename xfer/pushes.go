package xfer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// pushes are the copies that clients are pushing to a server. Only one attempt of a copy runs at a
// time: an earlier one, whose connection is lost, still removes or publishes files and sets times
// as it ends, and would change what a later one has made. The zero value has none.
type pushes struct {
	mu   sync.Mutex
	copy map[pushID]*pushedCopy
}

// pushID identifies a copy. It includes the key, because others must not end its attempts.
type pushID struct {
	key string
	id  fileset.StageID
}

// pushedCopy is a copy with an attempt that runs, waits for an earlier one, or is ending.
type pushedCopy struct {
	running  chan struct{} // holds a token while an attempt runs
	attempts int           // attempts that have entered and not left
	latest   uint32        // the highest number of an attempt
	end      func(error)   // ends that attempt
}

// stillWriting begins the text of an endingError.
const stillWriting = "an earlier attempt of this copy is still writing"

// endingError refuses an attempt because an earlier one does not end. The client may try again.
type endingError struct{ waited time.Duration }

func (e *endingError) Error() string { return fmt.Sprintf("%s after %v", stillWriting, e.waited) }

// Unwrap returns ErrPeerStopped: to the client the server has stopped, as if it had restarted.
func (e *endingError) Unwrap() error { return fault.ErrPeerStopped }

// enter makes a session the running attempt of its copy. It ends an earlier attempt and waits until
// nothing of that runs any more, for patience at most. The session calls left when nothing of it
// runs any more, even after an error.
func (p *pushes) enter(ctx context.Context, key string, end func(error), h *wire.Hello, patience time.Duration) (left func(), _ error) {
	if h.Terms.Mode != wire.ModePush || h.Copy == (wire.CopyAttempt{}) {
		return func() {}, nil
	}
	c, leave := p.add(pushID{key, h.Copy.ID}, h.Copy.Attempt, end)
	if c == nil {
		return leave, fault.ErrSuperseded
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case c.running <- struct{}{}:
		return func() { <-c.running; leave() }, context.Cause(ctx)
	case <-ctx.Done():
		return leave, context.Cause(ctx)
	case <-timeout.C:
		return leave, &endingError{patience}
	}
}

// add adds an attempt, and ends the one before it. It returns nil if a later one has come.
func (p *pushes) add(id pushID, attempt uint32, end func(error)) (c *pushedCopy, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch c = p.copy[id]; {
	case c == nil:
		if p.copy == nil {
			p.copy = make(map[pushID]*pushedCopy)
		}
		c = &pushedCopy{running: make(chan struct{}, 1)}
		p.copy[id] = c
	case attempt < c.latest:
		return nil, func() {}
	default:
		c.end(fault.ErrSuperseded)
	}
	c.latest, c.end = attempt, end
	c.attempts++
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.attempts--; c.attempts == 0 {
			delete(p.copy, id)
		}
	}
}
