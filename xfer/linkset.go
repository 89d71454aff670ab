package xfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// maxLinks bounds how many links a session has at once.
const maxLinks = 16

// linkSet holds the links of a session. Several goroutines may call its methods at once.
type linkSet struct {
	// joined brings links that were made outside of the session's goroutines.
	joined chan *railLink
	// wanted holds a token when the peer was not heard for a while over any link.
	wanted chan struct{}

	// moving is held while the conversation moves to another link.
	moving sync.Mutex

	first *railLink // it has the ring

	mu   sync.Mutex
	live []*railLink // copied on write
	over bool
	// coming are links whose first queue pair is being made: the peer may speak of them
	// already. lost are links that the two ends have not done with yet.
	coming, lost map[credit.Link]*railLink
	last         credit.Link // the highest number so far
	// answered are numbers of links that are not known here, for which a fence was
	// answered.
	answered map[credit.Link]bool
	group    *errgroup.Group
	ctx      context.Context
	// replaces says that the session may go on after its last link was lost: the client
	// tries to make another one. changed is closed, and replaced, when a link joins, and
	// when the last one is lost.
	replaces bool
	changed  chan struct{}
	usage    railUsage
}

func newLinkSet(first *railLink) *linkSet {
	k := &linkSet{
		first: first, answered: make(map[credit.Link]bool),
		joined: make(chan *railLink, maxLinks), wanted: make(chan struct{}, 1), live: []*railLink{first}, last: 1,
		coming: make(map[credit.Link]*railLink), lost: make(map[credit.Link]*railLink), changed: make(chan struct{}),
	}
	first.hasPoller = true
	k.usage.joined(first)
	return k
}

// uses returns what the session had of each rail.
func (k *linkSet) uses() []RailUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.read()
}

// carried is how many bytes of payload have come through, over all links.
func (k *linkSet) carried() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.doneSoFar()
}

// keepLoss keeps what tells of the loss of a rail until tellLoss.
func (k *linkSet) keepLoss(l *railLink, tell func()) {
	k.mu.Lock()
	k.usage.of(l).untold = tell
	k.mu.Unlock()
}

// tellLoss tells of the loss of a link's rail, if that was kept and not told.
func (k *linkSet) tellLoss(l *railLink) {
	k.mu.Lock()
	r := k.usage.of(l)
	tell := r.untold
	r.untold = nil
	k.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// begin notes where the session's goroutines run.
func (k *linkSet) begin(ctx context.Context, g *errgroup.Group) {
	k.mu.Lock()
	k.ctx, k.group = ctx, g
	k.mu.Unlock()
}

// spawn starts a goroutine of the session. Call it in one of them.
func (k *linkSet) spawn(f func(ctx context.Context) error) {
	k.group.Go(func() error { return f(k.ctx) })
}

// snapshot returns the links that are not lost. The caller must not change the slice.
func (k *linkSet) snapshot() []*railLink {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live
}

// heardLast is for how long nothing was heard over the best of the other links.
func (k *linkSet) heardLast(l *railLink) time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, other := range k.snapshot() {
		if other != l {
			best = min(best, other.silent())
		}
	}
	return best
}

// mayHurry reports whether a link that holds up the copy may be given up for that, and
// takes it that it then is.
func (k *linkSet) mayHurry(l *railLink) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.mayHurry(l)
}

// suspect asks for another link, because the peer is silent over all.
func (k *linkSet) suspect() {
	select {
	case k.wanted <- struct{}{}:
	default:
	}
}

// mayReplace lets the session outlive its last link.
func (k *linkSet) mayReplace() {
	k.mu.Lock()
	k.replaces = true
	k.mu.Unlock()
}

// number gives out the number of a new link, at the client. It is 0 when none is left.
func (k *linkSet) number() credit.Link {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last >= wire.MaxLinks {
		return 0
	}
	k.last++
	return k.last
}

// expect takes note of a link whose first queue pair is about to be made. ok is false
// where the session is over or has its links, or has the number already.
func (k *linkSet) expect(l *railLink) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over || len(k.live)+len(k.coming) >= maxLinks || k.coming[l.number] != nil || k.lost[l.number] != nil {
		return false
	}
	k.coming[l.number] = l
	k.last = max(k.last, l.number)
	return true
}

// unexpect forgets a link whose first queue pair could not be made.
func (k *linkSet) unexpect(l *railLink) {
	k.mu.Lock()
	delete(k.coming, l.number)
	k.mu.Unlock()
}

// offer hands a link that was expected to the session's goroutines. ok is false where
// the session is over.
func (k *linkSet) offer(l *railLink) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return false
	}
	select {
	case k.joined <- l:
		return true
	default:
		return false
	}
}

// add takes a link that was expected among the live ones. ok is false where the session
// is over, or the peer has given the link up already.
func (k *linkSet) add(l *railLink) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.coming, l.number)
	if k.over || l.lost.Load() {
		return false
	}
	l.hasPoller = true
	k.live = append(slices.Clone(k.live), l)
	k.usage.joined(l)
	k.changesLocked()
	return true
}

// changesLocked wakes who waits for a link, or for the loss of the last one.
func (k *linkSet) changesLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// left is how many links are not lost. changed is closed when that becomes none, or more.
func (k *linkSet) left() (n int, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live), k.changed
}

// find returns the link of a number that the peer named. It is nil for a link that is
// gone. The error says that there was never such a link.
func (k *linkSet) find(n credit.Link) (*railLink, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.IndexFunc(k.live, func(l *railLink) bool { return l.number == n }); i >= 0 {
		return k.live[i], nil
	}
	if n == 0 || n > k.last {
		return nil, fmt.Errorf("%w: link %d of %d", ErrProtocol, n, k.last)
	}
	if l := k.coming[n]; l != nil {
		return l, nil
	}
	return k.lost[n], nil
}

// drop marks a link as lost. left is how many live ones there are now. news is false
// where it was lost before. The error says that the session cannot go on without it.
func (k *linkSet) drop(l *railLink, why error) (left int, news bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.lost.Load() {
		return len(k.live), false, nil
	}
	rest := slices.DeleteFunc(slices.Clone(k.live), func(o *railLink) bool { return o == l })
	if rdma.FaultOf(why) == rdma.FaultAccess || len(rest) == 0 && !k.replaces {
		return len(k.live), false, errNoOtherLink
	}
	if len(rest) == 0 && k.usage.countLastLoss() {
		return len(k.live), false, errBarrenLinks
	}
	l.lost.Store(true)
	delete(k.coming, l.number) // where it is not there any more, its queue pair has just failed
	if !l.hasPoller {
		close(l.polled)
	}
	k.live, k.lost[l.number] = rest, l
	k.usage.lost(l, why)
	if len(rest) == 0 {
		k.changesLocked()
	}
	return len(rest), true, nil
}

var (
	// errNoOtherLink says that a session has lost what it cannot do without.
	errNoOtherLink = errors.New("no other link")
	// errBarrenLinks says that a session that makes links anew gets nowhere: connections
	// are made, and chunks do not come through, as where the network drops large packets.
	errBarrenLinks = fmt.Errorf("the last connection was lost %d times in a row before a chunk came through", barrenLosses)
)

// answer reports whether a fence of an unknown link is the first of its number.
func (k *linkSet) answer(n credit.Link) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered[n] {
		return false
	}
	k.answered[n] = true
	return true
}

// leave takes a link out of the live ones without a loss. left is how many there are
// then.
func (k *linkSet) leave(l *railLink) (left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(k.live), func(o *railLink) bool { return o == l })
	if len(rest) < len(k.live) {
		k.live, k.lost[l.number] = rest, l
	}
	return len(rest)
}

// forget drops a lost link that nobody asks for any more.
func (k *linkSet) forget(l *railLink) {
	k.mu.Lock()
	delete(k.lost, l.number)
	k.mu.Unlock()
}

// close closes all links, and last the first one, which has the ring. The session's
// goroutines must have ended.
func (k *linkSet) close() error {
	k.mu.Lock()
	k.over = true
	all := slices.Clone(k.live)
	for _, l := range k.lost {
		all = append(all, l)
	}
	k.mu.Unlock()
	all = slices.DeleteFunc(all, func(l *railLink) bool { return l == k.first })
	// Nothing is offered any more.
	for {
		select {
		case l := <-k.joined:
			all = append(all, l)
			continue
		default:
		}
		break
	}
	all = append(all, k.first)
	errs := make([]error, len(all))
	var closing sync.WaitGroup
	for i, l := range all {
		closing.Go(func() { errs[i] = l.closeLanes() })
	}
	closing.Wait()
	for _, l := range all {
		l.end()
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}
