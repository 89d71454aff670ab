package link

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/internal/numa"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// Link is a session's use of one rail, from the time the rail joins until it is lost or the session
// ends: the queue pairs that reach the peer from there, and the registration of this end's ring. It
// owns both. A session's first link also owns the ring, and leaves its rail to the caller. Each
// later link owns its rail.
type Link struct {
	Number credit.Link
	Rail   rdma.Rail
	keys   *trust.Session
	// name is the rail's name in messages for people: its device, or its address for TCP.
	name string
	// Transport is the provider's name.
	Transport string
	// mostLanes is the number of queue pairs that were granted.
	mostLanes int

	// Ring is set before ringReady is closed.
	Ring      *ring.Ring
	ringReady chan struct{}
	// loops are the rail's connections to itself.
	loops ring.Loopbacks
	// Payload and Header are the registrations of this end's ring on the rail. They are set before
	// the link carries chunks. made has all that the link must close; what was made with the ring
	// is closed by the ring. regions guards making and closing them.
	Payload, Header rdma.MR
	made            []rdma.MR
	regions         sync.Mutex
	closed          bool

	// Lost is set once, when the link is dropped. end ends over, and with it the poller. polled is
	// closed when the poller has ended, and shut when nothing can arrive through the link any more.
	// hasPoller says that the link has a poller or is about to get one. The set's lock guards it.
	Lost      atomic.Bool
	Over      context.Context
	End       context.CancelFunc
	hasPoller bool
	polled    chan struct{}
	Shut      chan struct{}
	// Unusable is the reason why the ring could not be registered on the rail. There is no point in
	// another attempt.
	Unusable atomic.Pointer[error]

	// gbps is the rate of the device, or 0 if unknown. Rate is the same, or 1 if unknown. IsReserve
	// says that chunks go over the link only if every other link is lost or silent.
	gbps, Rate float64
	IsReserve  bool
	// Node is the NUMA node of the device. The link's poller runs there.
	Node *numa.Node

	// The Sender's lock guards these. Target is the place of the sink's slots on this rail. Ready
	// says that this end's slots can be sent from there.
	Target wire.RingInfo
	Ready  bool

	mu    sync.Mutex
	Lanes []*Lane // nil once the link is closed

	// Joining is held, at a server, while a queue pair of a further link is made: they are made one
	// by one. Each link has its own lock, because making one may take as long as a client waits,
	// and other links are made meanwhile.
	Joining sync.Mutex

	// GiveBack, at a server, returns the memory and descriptors that were reserved for a further
	// link.
	GiveBack func()
	// relaxed says that this end's slots are registered with relaxed ordering.
	relaxed atomic.Bool
	// Suspected says that nothing was received over the link for a while.
	Suspected atomic.Bool
	// Fenced says that the source has asked to end the link. The session's hearing lock guards it.
	Fenced bool
	// DoneBytes counts the payload of chunks that came back or, at the sink, were announced whole.
	// All links of a rail share one counter.
	DoneBytes *atomic.Int64
}

// NewFirst returns a session's first link with its first queue pair.
func NewFirst(rail rdma.Rail, keys *trust.Session, mostLanes int, transport string, conn rdma.Conn, name trust.Lane) *Link {
	l := NewFurther(1, rail, keys, mostLanes)
	l.NameFor(transport, conn.Remote())
	l.Lanes = []*Lane{newLane(l, conn, name)}
	return l
}

// NameFor names a link for people: by its device, or for TCP by the peer's address.
func (r *Link) NameFor(transport string, peer netip.AddrPort) {
	r.Transport, r.name = transport, r.Rail.Device().Name
	if transport == "tcp" {
		r.name = peer.Addr().String()
	}
}

// NewFurther returns a link without a queue pair.
func NewFurther(number credit.Link, rail rdma.Rail, keys *trust.Session, mostLanes int) *Link {
	l := &Link{
		Number: number, Rail: rail, keys: keys, mostLanes: mostLanes, ringReady: make(chan struct{}),
		polled: make(chan struct{}), Shut: make(chan struct{}), Lanes: []*Lane{}, Rate: 1, GiveBack: func() {}, DoneBytes: new(atomic.Int64),
	}
	if l.gbps = rail.Device().RateGbps(); l.gbps > 0 {
		l.Rate = l.gbps
	}
	l.Node = numa.Of(numa.Sysfs, rail.Device().NUMANode)
	l.Over, l.End = context.WithCancel(context.Background())
	return l
}

// Place makes the ring on a session's first link.
func (r *Link) Place(ctx context.Context, c ring.Config) error {
	c.Loops = &r.loops
	made, err := ring.Place(ctx, r.Rail, c)
	r.Ring = made // the link closes it, even if it is half made
	if err != nil {
		return err
	}
	r.Payload, r.Header = made.PayloadMR, made.HeaderMR
	r.relaxed.Store(r.Payload.Relaxed())
	close(r.ringReady)
	return nil
}

// RingNodes returns the numbers of the NUMA nodes that hold the ring.
func (r *Link) RingNodes() []int {
	if r.Ring == nil {
		return nil
	}
	return r.Ring.Nodes()
}

// Register registers the ring of a session's first link on the rail of a further one. The link
// closes the regions. On a closed link, Register makes nothing.
func (r *Link) Register(of *ring.Ring, access rdma.Access) (err error) {
	r.regions.Lock()
	defer r.regions.Unlock()
	if r.closed {
		return rdma.ErrClosed
	}
	if r.Payload, r.Header, err = of.RegisterOn(r.Rail, access); err != nil {
		return err
	}
	r.made = append(r.made, r.Payload, r.Header)
	r.relaxed.Store(r.Payload.Relaxed())
	return nil
}

// Info describes the place of this end's slots on this rail.
func (r *Link) Info(of *ring.Ring) wire.RingInfo {
	return of.InfoOn(uint32(r.Number), r.Payload, r.Header)
}

// AwaitRing waits until the ring is made.
func (r *Link) AwaitRing(ctx context.Context) error {
	select {
	case <-r.ringReady:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// AddLane adds a further queue pair to the link. The link closes the queue pair, even if it comes
// too late to be used.
func (r *Link) AddLane(conn rdma.Conn, name trust.Lane) error {
	r.mu.Lock()
	if r.Lanes == nil || len(r.Lanes) >= r.mostLanes {
		r.mu.Unlock()
		return errors.Join(rdma.ErrClosed, conn.Close())
	}
	// Copy on write: the poller and the heartbeat goroutine read the slice without the lock.
	r.Lanes = append(append(make([]*Lane, 0, len(r.Lanes)+1), r.Lanes...), newLane(r, conn, name))
	r.mu.Unlock()
	return nil
}

// Snapshot returns the link's present queue pairs. The caller must not change the slice.
func (r *Link) Snapshot() []*Lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Lanes
}

// firstLane returns the queue pair that may carry control messages, or nil once the link is closed.
func (r *Link) firstLane() *Lane {
	if lanes := r.Snapshot(); len(lanes) > 0 {
		return lanes[0]
	}
	return nil
}

// laneOf returns the lane of a connection, or nil if the connection is not part of the link yet.
func (r *Link) laneOf(conn rdma.Conn) *Lane {
	for _, l := range r.Snapshot() {
		if l.Conn == conn {
			return l
		}
	}
	return nil
}

// lostAfter is the silence after which a link counts as lost. An RDMA device resends a lost packet
// only after seconds (rdma.DefaultAckTimeout), and is silent until then, so it gets twice the time
// of TCP.
func (r *Link) lostAfter(suspect time.Duration) time.Duration {
	if r.Transport == "tcp" {
		return suspect
	}
	return 2 * suspect
}

// Rank orders links by their suitability for chunks: 0 is the best. TCP is the last resort if there
// are RDMA devices, but better than a rail that is probably about to be lost with all its chunks.
func (r *Link) Rank() int {
	switch {
	case r.Suspected.Load():
		return 2
	case r.IsReserve:
		return 1
	}
	return 0
}

// silent is the silence of the queue pair that has been silent the longest.
func (r *Link) silent() time.Duration {
	longest := time.Duration(0)
	for _, l := range r.Snapshot() {
		longest = max(longest, time.Since(l.Conn.LastHeard()))
	}
	return longest
}

// closeLanes closes the queue pairs. After that nothing can arrive through the link, and its
// devices do not read any slot.
func (r *Link) closeLanes() error {
	r.mu.Lock()
	lanes := r.Lanes
	r.Lanes = nil
	r.mu.Unlock()
	// In parallel, because each may wait for its peer.
	errs := make([]error, len(lanes))
	var all sync.WaitGroup
	for i, l := range lanes {
		all.Go(func() { errs[i] = l.Conn.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// unregister ends the registration of the first link's ring if it is in host memory. A later link
// over the same device registers the ring again. The queue pairs must be closed.
func (r *Link) unregister() error {
	select {
	case <-r.ringReady:
	default:
		return nil
	}
	if r.Ring.Payload == nil {
		return nil
	}
	_, err := r.closeMade()
	return errors.Join(r.Ring.PayloadMR.Close(), r.Ring.HeaderMR.Close(), err)
}

// closeMade closes the registrations that the link has made. The link makes none after that.
func (r *Link) closeMade() (wasClosed bool, err error) {
	r.regions.Lock()
	defer r.regions.Unlock()
	var errs []error
	for _, mr := range r.made {
		errs = append(errs, mr.Close())
	}
	wasClosed, r.closed, r.made = r.closed, true, nil
	return wasClosed, errors.Join(errs...)
}

// Close closes the queue pairs, and then the memory that they could reach. The link's poller must
// have ended.
func (r *Link) Close() error {
	errs := []error{r.closeLanes(), r.loops.Close()}
	wasClosed, err := r.closeMade()
	errs = append(errs, err)
	switch {
	case r.Number == 1:
		errs = append(errs, r.Ring.Close())
	case !wasClosed:
		errs = append(errs, r.Rail.Close())
		r.GiveBack()
	}
	return errors.Join(errs...)
}
