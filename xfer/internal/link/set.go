package link

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
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// MaxLinks bounds how many links a session has at a time.
const MaxLinks = 16

// Set holds the links of a session. Several goroutines may call its methods concurrently.
type Set struct {
	// joined passes on links that were made outside the session's goroutines.
	joined chan *Link
	// Wanted holds a token if nothing was received from the peer for a while over any link.
	Wanted chan struct{}

	// moving is held while the conversation moves to another link.
	moving sync.Mutex

	first *Link // it has the ring

	mu   sync.Mutex
	live []*Link // copied on write
	Over bool
	// coming are links whose first queue pair is being made: the peer may already name them. lost
	// are links that the two ends have not finished with.
	coming, lost map[credit.Link]*Link
	last         credit.Link // the highest number so far
	// answered are the numbers of unknown links for which a fence was answered.
	answered map[credit.Link]bool
	group    *errgroup.Group
	ctx      context.Context
	// replaces says that the session may continue after its last link was lost: the client tries to
	// make another one. changed is closed and replaced when a link joins, and when the last one is
	// lost.
	replaces bool
	changed  chan struct{}
	usage    railUsage
}

func NewSet(first *Link) *Set {
	k := &Set{
		first: first, answered: make(map[credit.Link]bool),
		joined: make(chan *Link, MaxLinks), Wanted: make(chan struct{}, 1), live: []*Link{first}, last: 1,
		coming: make(map[credit.Link]*Link), lost: make(map[credit.Link]*Link), changed: make(chan struct{}),
	}
	first.hasPoller = true
	k.usage.joined(first)
	return k
}

// Uses returns the session's use of each rail.
func (k *Set) Uses() []result.RailUse {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.read()
}

// Carried is the payload that has arrived over all links, in bytes.
func (k *Set) Carried() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.doneSoFar()
}

// keepLoss keeps the report of a lost rail until tellLoss.
func (k *Set) keepLoss(l *Link, tell func()) {
	k.mu.Lock()
	k.usage.of(l).untold = tell
	k.mu.Unlock()
}

// tellLoss reports the loss of a link's rail, if keepLoss kept the report.
func (k *Set) tellLoss(l *Link) {
	k.mu.Lock()
	r := k.usage.of(l)
	tell := r.untold
	r.untold = nil
	k.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// begin records the context and the group of the session's goroutines.
func (k *Set) begin(ctx context.Context, g *errgroup.Group) {
	k.mu.Lock()
	k.ctx, k.group = ctx, g
	k.mu.Unlock()
}

// Spawn starts a goroutine of the session. Call it in one of them.
func (k *Set) Spawn(f func(ctx context.Context) error) {
	k.group.Go(func() error { return f(k.ctx) })
}

// Snapshot returns the links that are not lost. The caller must not change the slice.
func (k *Set) Snapshot() []*Link {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.live
}

// heardLast is the shortest silence of the other links.
func (k *Set) heardLast(l *Link) time.Duration {
	best := time.Duration(math.MaxInt64)
	for _, other := range k.Snapshot() {
		if other != l {
			best = min(best, other.silent())
		}
	}
	return best
}

// mayHurry reports whether a link may be dropped because it holds up the copy. If so, it assumes
// that the caller drops it.
func (k *Set) mayHurry(l *Link) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.usage.mayHurry(l)
}

// suspect asks for another link, because the peer is silent over all.
func (k *Set) suspect() {
	select {
	case k.Wanted <- struct{}{}:
	default:
	}
}

// MayReplace lets the session outlive its last link.
func (k *Set) MayReplace() {
	k.mu.Lock()
	k.replaces = true
	k.mu.Unlock()
}

// Number returns the number of a new link, at the client. It is 0 if none is left.
func (k *Set) Number() credit.Link {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last >= wire.MaxLinks {
		return 0
	}
	k.last++
	return k.last
}

// Expect records a link whose first queue pair is about to be made. ok is false if the session is
// over, has all its links, or has the number already.
func (k *Set) Expect(l *Link) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Over || len(k.live)+len(k.coming) >= MaxLinks || k.coming[l.Number] != nil || k.lost[l.Number] != nil {
		return false
	}
	k.coming[l.Number] = l
	k.last = max(k.last, l.Number)
	return true
}

// Unexpect forgets a link whose first queue pair could not be made.
func (k *Set) Unexpect(l *Link) {
	k.mu.Lock()
	delete(k.coming, l.Number)
	k.mu.Unlock()
}

// Offer passes an expected link to the session's goroutines. ok is false if the session is over.
func (k *Set) Offer(l *Link) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Over {
		return false
	}
	select {
	case k.joined <- l:
		return true
	default:
		return false
	}
}

// Add makes an expected link a live one. ok is false if the session is over, or the peer has
// dropped the link already.
func (k *Set) Add(l *Link) (ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.coming, l.Number)
	if k.Over || l.Lost.Load() {
		return false
	}
	l.hasPoller = true
	k.live = append(slices.Clone(k.live), l)
	k.usage.joined(l)
	k.changesLocked()
	return true
}

// changesLocked wakes the goroutines that wait for a link, or for the loss of the last one.
func (k *Set) changesLocked() {
	close(k.changed)
	k.changed = make(chan struct{})
}

// Left returns the number of links that are not lost. changed is closed when that number becomes
// zero or grows.
func (k *Set) Left() (n int, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.live), k.changed
}

// Find returns the link with a number that the peer sent, or nil if the link is gone. The error
// says that there never was such a link.
func (k *Set) Find(n credit.Link) (*Link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := slices.IndexFunc(k.live, func(l *Link) bool { return l.Number == n }); i >= 0 {
		return k.live[i], nil
	}
	if n == 0 || n > k.last {
		return nil, fmt.Errorf("%w: link %d of %d", fault.ErrProtocol, n, k.last)
	}
	if l := k.coming[n]; l != nil {
		return l, nil
	}
	return k.lost[n], nil
}

// Drop marks a link as lost. left is the number of live links that remain. news is false if the
// link was lost before. The error says that the session cannot continue without it.
func (k *Set) Drop(l *Link, why error) (left int, news bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Lost.Load() {
		return len(k.live), false, nil
	}
	rest := slices.DeleteFunc(slices.Clone(k.live), func(o *Link) bool { return o == l })
	if rdma.FaultOf(why) == rdma.FaultAccess || len(rest) == 0 && !k.replaces {
		return len(k.live), false, errNoOtherLink
	}
	if len(rest) == 0 && k.usage.countLastLoss() {
		return len(k.live), false, errBarrenLinks
	}
	l.Lost.Store(true)
	delete(k.coming, l.Number) // if it is not there any more, its queue pair has just failed
	if !l.hasPoller {
		close(l.polled)
	}
	k.live, k.lost[l.Number] = rest, l
	k.usage.lost(l, why)
	if len(rest) == 0 {
		k.changesLocked()
	}
	return len(rest), true, nil
}

var (
	// errNoOtherLink says that a session has lost a link that it cannot do without.
	errNoOtherLink = errors.New("no other link")
	// errBarrenLinks says that a session keeps making links without progress: connections are
	// established, but no chunk arrives, for example because the network drops large packets.
	errBarrenLinks = fmt.Errorf("the last connection was lost %d times in a row before a chunk came through", barrenLosses)
)

// Answer reports whether a fence of an unknown link is the first with its number.
func (k *Set) Answer(n credit.Link) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.answered[n] {
		return false
	}
	k.answered[n] = true
	return true
}

// leave removes a live link without a loss. left is the number of links that remain.
func (k *Set) leave(l *Link) (left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(k.live), func(o *Link) bool { return o == l })
	if len(rest) < len(k.live) {
		k.live, k.lost[l.Number] = rest, l
	}
	return len(rest)
}

// Forget removes a lost link that is no longer needed.
func (k *Set) Forget(l *Link) {
	k.mu.Lock()
	delete(k.lost, l.Number)
	k.mu.Unlock()
}

// Close closes all links. It closes the first one last, because that has the ring. The session's
// goroutines must have ended.
func (k *Set) Close() error {
	k.mu.Lock()
	k.Over = true
	all := slices.Clone(k.live)
	for _, l := range k.lost {
		all = append(all, l)
	}
	k.mu.Unlock()
	all = slices.DeleteFunc(all, func(l *Link) bool { return l == k.first })
	// No link is offered any more.
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
		l.End()
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
