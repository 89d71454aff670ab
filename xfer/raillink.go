package xfer

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

// railLink is what a session has on one rail from the time when the rail joins the
// session until it is lost or the session ends: the queue pairs that reach the peer from
// there, and the registration of this end's ring. It owns them. The first link of a
// session owns the ring, too, and leaves its rail to the caller; every later link owns
// its rail.
type railLink struct {
	number credit.Link
	rail   rdma.Rail
	keys   *trust.Session
	// name is what people call the rail: its device, or its address for TCP.
	name string
	// transport is the provider's name.
	transport string
	// mostLanes is how many queue pairs were granted.
	mostLanes int

	// ring is set once ringReady is closed.
	ring      *ring.Ring
	ringReady chan struct{}
	// loops are the rail's connections to itself.
	loops ring.Loopbacks
	// payload and header are this end's ring on the rail. They are set before the link is
	// used for chunks.
	// made has all that the link has to close; the ring closes what was made with it. regions
	// guards making and closing them.
	payload, header rdma.MR
	made            []rdma.MR
	regions         sync.Mutex
	closed          bool

	// lost is set once, when the link is given up. over ends when its poller is to end:
	// end ends it. polled is closed when the poller has ended, and shut when nothing can
	// land through the link any more. hasPoller, which the set's lock guards, says that it
	// has a poller or is about to.
	lost      atomic.Bool
	over      context.Context
	end       context.CancelFunc
	hasPoller bool
	polled    chan struct{}
	shut      chan struct{}
	// unusable is why the ring could not be registered on the rail: it is of no use to
	// try again.
	unusable atomic.Pointer[error]

	// gbps is the rate of the device, or 0 where it is not known, and rate the same or 1.
	// isReserve says that chunks go over the link only where every other is lost or silent.
	gbps, rate float64
	isReserve  bool
	// node is that of the device. Its poller runs there.
	node *numa.Node

	// The chunkSender's lock guards these. target is where the sink's slots are on this
	// rail. ready says that this end's slots can be sent from there.
	target wire.RingInfo
	ready  bool

	mu    sync.Mutex
	lanes []*lane // nil once the link is closed

	// joining is held, at a server, while a queue pair of a further link is made: they come
	// one after the other. It is the link's own, because making one may take as long as a
	// client waits, and other links are tried meanwhile.
	joining sync.Mutex

	// giveBack, at a server, returns the memory that was booked for a further link.
	giveBack func()
	// relaxed says that this end's slots are registered with relaxed ordering.
	relaxed atomic.Bool
	// suspected says that nothing was heard over the link for a while.
	suspected atomic.Bool
	// fenced says that the source has asked for the end of the link. The session's hearing
	// lock guards it.
	fenced bool
	// doneBytes counts the payload of chunks that came back or, at the sink, were announced
	// whole. All links of a rail count in one number.
	doneBytes *atomic.Int64
}

// newRailLink returns a session's first link with its first queue pair.
func newRailLink(rail rdma.Rail, keys *trust.Session, mostLanes int, transport string, conn rdma.Conn, name trust.Lane) *railLink {
	l := newFurtherLink(1, rail, keys, mostLanes)
	l.nameFor(transport, conn.Remote())
	l.lanes = []*lane{newLane(l, conn, name)}
	return l
}

// nameFor names a link for people: by its device, or over TCP by the peer's address.
func (r *railLink) nameFor(transport string, peer netip.AddrPort) {
	r.transport, r.name = transport, r.rail.Device().Name
	if transport == "tcp" {
		r.name = peer.Addr().String()
	}
}

// newFurtherLink returns a link without a queue pair.
func newFurtherLink(number credit.Link, rail rdma.Rail, keys *trust.Session, mostLanes int) *railLink {
	l := &railLink{
		number: number, rail: rail, keys: keys, mostLanes: mostLanes, ringReady: make(chan struct{}),
		polled: make(chan struct{}), shut: make(chan struct{}), lanes: []*lane{}, rate: 1, giveBack: func() {}, doneBytes: new(atomic.Int64),
	}
	if l.gbps = rail.Device().RateGbps(); l.gbps > 0 {
		l.rate = l.gbps
	}
	l.node = numa.Of(numa.Sysfs, rail.Device().NUMANode)
	l.over, l.end = context.WithCancel(context.Background())
	return l
}

// place makes the ring, on a session's first link.
func (r *railLink) place(ctx context.Context, c ring.Config) error {
	c.Loops = &r.loops
	made, err := ring.Place(ctx, r.rail, c)
	r.ring = made // the link closes it, also when it is half made
	if err != nil {
		return err
	}
	r.payload, r.header = made.PayloadMR, made.HeaderMR
	r.relaxed.Store(r.payload.Relaxed())
	close(r.ringReady)
	return nil
}

// ringNodes are the numbers of the NUMA nodes that the ring is on.
func (r *railLink) ringNodes() []int {
	if r.ring == nil {
		return nil
	}
	return r.ring.Nodes()
}

// register registers the ring of a session's first link on the rail of a further one. The link
// closes the regions. It makes nothing on a link that is closed.
func (r *railLink) register(of *ring.Ring, access rdma.Access) (err error) {
	r.regions.Lock()
	defer r.regions.Unlock()
	if r.closed {
		return rdma.ErrClosed
	}
	if r.payload, r.header, err = of.RegisterOn(r.rail, access); err != nil {
		return err
	}
	r.made = append(r.made, r.payload, r.header)
	r.relaxed.Store(r.payload.Relaxed())
	return nil
}

// info is where this end's slots are on this rail.
func (r *railLink) info(of *ring.Ring) wire.RingInfo {
	return of.InfoOn(uint32(r.number), r.payload, r.header)
}

// awaitRing waits until the ring is made.
func (r *railLink) awaitRing(ctx context.Context) error {
	select {
	case <-r.ringReady:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// addLane takes a further queue pair into the link. The link closes the queue pair,
// also where it comes too late.
func (r *railLink) addLane(conn rdma.Conn, name trust.Lane) error {
	r.mu.Lock()
	if r.lanes == nil || len(r.lanes) >= r.mostLanes {
		r.mu.Unlock()
		return errors.Join(rdma.ErrClosed, conn.Close())
	}
	// Copy on write: the poller and the heart read the slice without the lock.
	r.lanes = append(append(make([]*lane, 0, len(r.lanes)+1), r.lanes...), newLane(r, conn, name))
	r.mu.Unlock()
	return nil
}

// snapshot returns the queue pairs that the link has now. The caller must not change the
// slice.
func (r *railLink) snapshot() []*lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lanes
}

// firstLane is the queue pair that may carry control messages, or nil once the link is
// closed.
func (r *railLink) firstLane() *lane {
	if lanes := r.snapshot(); len(lanes) > 0 {
		return lanes[0]
	}
	return nil
}

// laneOf finds the lane of a connection. It is nil for a connection that is not in the
// link yet.
func (r *railLink) laneOf(conn rdma.Conn) *lane {
	for _, l := range r.snapshot() {
		if l.conn == conn {
			return l
		}
	}
	return nil
}

// lostAfter is how long a link may be silent before it counts as lost. An RDMA device sends
// a lost packet again only after seconds (rdma.DefaultAckTimeout), and is silent until
// then: it gets twice the time of TCP.
func (r *railLink) lostAfter(suspect time.Duration) time.Duration {
	if r.transport == "tcp" {
		return suspect
	}
	return 2 * suspect
}

// rank orders links by how good they are for chunks: 0 is the best. TCP is the last resort
// where there are RDMA devices, but better than a rail that is most likely about to be
// lost, with all chunks that it has.
func (r *railLink) rank() int {
	switch {
	case r.suspected.Load():
		return 2
	case r.isReserve:
		return 1
	}
	return 0
}

// silent is for how long nothing was heard on the queue pair that is silent the longest.
func (r *railLink) silent() time.Duration {
	longest := time.Duration(0)
	for _, l := range r.snapshot() {
		longest = max(longest, time.Since(l.conn.LastHeard()))
	}
	return longest
}

// closeLanes closes the queue pairs. After that nothing can land through the link, and
// its devices read no slot any more.
func (r *railLink) closeLanes() error {
	r.mu.Lock()
	lanes := r.lanes
	r.lanes = nil
	r.mu.Unlock()
	// All at once, because each may wait for its peer.
	errs := make([]error, len(lanes))
	var all sync.WaitGroup
	for i, l := range lanes {
		all.Go(func() { errs[i] = l.conn.Close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// unregister ends the registration of the first link's ring, where that is in host memory:
// a link that comes later over the same device registers the ring again. The queue pairs
// must be closed.
func (r *railLink) unregister() error {
	select {
	case <-r.ringReady:
	default:
		return nil
	}
	if r.ring.Payload == nil {
		return nil
	}
	_, err := r.closeMade()
	return errors.Join(r.ring.PayloadMR.Close(), r.ring.HeaderMR.Close(), err)
}

// closeMade ends the registrations that the link has made. The link makes none after that.
func (r *railLink) closeMade() (wasClosed bool, err error) {
	r.regions.Lock()
	defer r.regions.Unlock()
	var errs []error
	for _, mr := range r.made {
		errs = append(errs, mr.Close())
	}
	wasClosed, r.closed, r.made = r.closed, true, nil
	return wasClosed, errors.Join(errs...)
}

// close closes the queue pairs, and then the memory that they could reach. The link's
// poller must have ended.
func (r *railLink) close() error {
	errs := []error{r.closeLanes(), r.loops.Close()}
	wasClosed, err := r.closeMade()
	errs = append(errs, err)
	switch {
	case r.number == 1:
		errs = append(errs, r.ring.Close())
	case !wasClosed:
		errs = append(errs, r.rail.Close())
		r.giveBack()
	}
	return errors.Join(errs...)
}
