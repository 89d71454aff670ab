package rdmatest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// errWoken ends a Wait of the wrapped rail because a fault has something to
// deliver.
var errWoken = errors.New("woken")

// faultyRail delivers the wrapped rail's completions through a list, in which
// faults can hold completions back and insert others.
type faultyRail struct {
	rdma.Rail
	provider *faultyProvider
	cfg      rdma.RailConfig
	// ending counts the Closes of Conns that faults have begun.
	ending sync.WaitGroup

	mu     sync.Mutex
	conns  map[rdma.Conn]*faultyConn // by the wrapped Conn
	held   []heldCompletion
	copies []spoiledCopy
	closed bool
	// woken: there is something to deliver. cancelWait ends a running Wait.
	woken      bool
	cancelWait context.CancelCauseFunc
}

// heldCompletion is delivered when it is due and no earlier completion of its Conn is
// left.
type heldCompletion struct {
	rdma.Completion
	conn *faultyConn
	due  time.Time
}

// spoiledCopy is the memory from which a corrupted Write is sent. It lives as
// long as the rail.
type spoiledCopy struct {
	mr  rdma.MR
	mem []byte
}

func newFaultyRail(p *faultyProvider, inner rdma.Rail, cfg rdma.RailConfig) *faultyRail {
	return &faultyRail{Rail: inner, provider: p, cfg: cfg, conns: make(map[rdma.Conn]*faultyConn)}
}

func (r *faultyRail) Device() rdma.Device {
	d := r.Rail.Device()
	if change := r.provider.faults.Device; change != nil {
		d = change(d)
	}
	return d
}

func (r *faultyRail) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if fail := r.provider.faults.Register; fail != nil {
		if err := fail(what, access); err != nil {
			return nil, &rdma.OpError{Op: "register memory", Device: r.Device().Name, Err: err}
		}
	}
	mr, err := r.Rail.Register(what, access)
	if err != nil {
		return nil, err
	}
	tell := r.provider.faults.Registered
	if tell == nil {
		tell = func(int) {}
	}
	tell(what.Len)
	return &faultyMR{mr, what.Mem, sync.OnceFunc(func() { tell(-what.Len) })}, nil
}

func (r *faultyRail) Dial(ctx context.Context, remote netip.AddrPort, privateData []byte) (rdma.Conn, error) {
	if fail := r.provider.faults.Dial; fail != nil {
		if err := fail(remote, privateData); err != nil {
			return nil, &rdma.OpError{Op: "connect", Device: r.Device().Name, Peer: remote, Err: err}
		}
	}
	inner, err := r.Rail.Dial(ctx, remote, privateData)
	if err != nil {
		return nil, err
	}
	return r.wrap(inner), nil
}

func (r *faultyRail) Loopback(ctx context.Context) (rdma.Conn, error) {
	if fail := r.provider.faults.Loopback; fail != nil {
		if err := fail(); err != nil {
			return nil, &rdma.OpError{Op: "connect to itself", Device: r.Device().Name, Err: err}
		}
	}
	inner, err := r.Rail.Loopback(ctx)
	if err != nil {
		return nil, err
	}
	return r.wrapper(inner, func() int { return 0 }), nil
}

// wrap returns the wrapper of a Conn, which may exist already because a completion
// needed it.
func (r *faultyRail) wrap(inner rdma.Conn) *faultyConn {
	return r.wrapper(inner, func() int { return int(r.provider.conns.Add(1)) })
}

func (r *faultyRail) wrapper(inner rdma.Conn, number func() int) *faultyConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.conns[inner]
	if c == nil {
		c = &faultyConn{Conn: inner, rail: r, number: number()}
		r.conns[inner] = c
	}
	return c
}

// Wait delivers the completions that are due. If none is due, it waits for more, or
// until one is.
func (r *faultyRail) Wait(ctx context.Context, out []rdma.Completion) (int, error) {
	inner := make([]rdma.Completion, len(out))
	for {
		n, next := r.deliver(out)
		if n > 0 {
			return n, nil
		}
		got, err := r.waitInner(ctx, inner, next)
		r.hold(inner[:got])
		// If this rail is itself wrapped, the outer faults wake its Wait in the same way.
		if err != nil && (ctx.Err() != nil || !errors.Is(err, errWoken)) {
			return 0, err
		}
	}
}

// waitInner waits for the wrapped rail, for a wake, or until next, unless it is zero.
func (r *faultyRail) waitInner(ctx context.Context, inner []rdma.Completion, next time.Time) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	r.cancelWait = cancel
	if r.woken { // since deliver ran
		r.woken = false
		cancel(errWoken)
	}
	r.mu.Unlock()
	if !next.IsZero() {
		timer := time.AfterFunc(time.Until(next), func() { cancel(errWoken) })
		defer timer.Stop()
	}
	return r.Rail.Wait(ctx, inner)
}

// wake ends the wrapped rail's current Wait, or its next one. The caller holds r.mu.
func (r *faultyRail) wake() {
	r.woken = true
	if r.cancelWait != nil {
		r.cancelWait(errWoken)
	}
}

// deliver moves the completions that are due to out, and returns the time at
// which the next will be due.
func (r *faultyRail) deliver(out []rdma.Completion) (n int, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.woken = false
	now := time.Now()
	later := r.held[:0]
	for _, h := range r.held {
		if n < len(out) && !h.due.After(now) {
			out[n] = h.Completion
			n++
			continue
		}
		if next.IsZero() || h.due.Before(next) {
			next = h.due
		}
		later = append(later, h)
	}
	clear(r.held[len(later):])
	r.held = later
	return n, next
}

// hold queues completions of the wrapped rail.
func (r *faultyRail) hold(got []rdma.Completion) {
	for _, done := range got {
		c := r.wrap(done.Conn)
		done.Conn = c
		if done.Kind == rdma.Message {
			done.Msg = append([]byte{}, done.Msg...) // it outlives the wrapped Wait
		}
		var delay time.Duration
		if ask := r.provider.faults.Delay; ask != nil {
			delay = ask(done)
		}
		r.mu.Lock()
		if !c.silent && !c.told {
			r.add(c, done, delay)
		}
		r.mu.Unlock()
	}
}

// add appends a completion. The caller holds r.mu.
func (r *faultyRail) add(c *faultyConn, done rdma.Completion, delay time.Duration) {
	due := time.Now().Add(delay)
	if due.Before(c.lastDue) {
		due = c.lastDue
	}
	c.lastDue = due
	c.told = c.told || done.Kind == rdma.Closed
	r.held = append(r.held, heldCompletion{done, c, due})
}

// forget drops the completions of a closed Conn.
func (r *faultyRail) forget(c *faultyConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.held[:0]
	for _, h := range r.held {
		if h.conn != c {
			kept = append(kept, h)
		}
	}
	clear(r.held[len(kept):])
	r.held = kept
	delete(r.conns, c.Conn)
}

// spoil returns memory with the bytes of the work request, except for one flipped bit.
func (r *faultyRail) spoil(m *faultyMR, wr *rdma.WR, offset int) (rdma.MR, error) {
	mem, err := unix.Mmap(-1, 0, wr.Len, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map memory for a corrupted write: %w", err)
	}
	if err := m.spoiled(mem, wr, offset); err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	mr, err := r.Rail.Register(rdma.HostRegion(mem), 0)
	if err != nil {
		return nil, errors.Join(err, unix.Munmap(mem))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies = append(r.copies, spoiledCopy{mr, mem})
	return mr, nil
}

// Close closes the wrapped rail, then frees the copies.
func (r *faultyRail) Close() error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.ending.Wait()
	err := r.Rail.Close()
	r.mu.Lock()
	copies := r.copies
	r.copies = nil
	r.mu.Unlock()
	for _, c := range copies {
		err = errors.Join(err, c.mr.Close(), unix.Munmap(c.mem))
	}
	return err
}
