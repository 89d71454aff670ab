package xfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/internal/printable"
	"gdrcp/rdma"

	"golang.org/x/sync/errgroup"
)

// entryWindow is how many entries may be announced and not yet ended. It
// bounds the memory of both ends, and is several batches of publication.
const entryWindow = 8192

// srcEntry is an announced entry at the source, until the sink has told what
// became of it.
type srcEntry struct {
	booking
	stamp      chunker.Stamp
	xattrBytes int
	// mayGrow: the file may become longer while it is read, and hasGrown: it has.
	mayGrow  bool
	hasGrown atomic.Bool
	// packed is how far the file has been cut into extents; the packer's.
	packed int64
	// unwanted: the sink wants no data of it. Guarded by the outflow's lock.
	unwanted bool
	// committed: every extent has been posted. Guarded by the outflow's lock.
	committed bool
	// read counts the bytes with which workers are done, holes included.
	read atomic.Int64
	// problem is why the entry must not be published. The poller looks at it,
	// and must not wait for those who read the file.
	problem atomic.Pointer[exception]
	// settled: the sink has told what became of the entry.
	settled atomic.Bool

	mu sync.RWMutex
	// file is open while a file of several extents is read. Readers hold the
	// lock shared.
	file *chunker.File
}

// giveUp marks the entry as not to be published. It reports whether this was
// the first reason, which stands.
func (e *srcEntry) giveUp(outcome Outcome, text string) bool {
	return e.problem.CompareAndSwap(nil, &exception{entry: e.id, outcome: outcome, text: text})
}

func (e *srcEntry) failed() *exception { return e.problem.Load() }

// closeFile closes the file that several extents shared.
func (e *srcEntry) closeFile() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil {
		e.file.Close()
		e.file = nil
	}
}

// source is the end that has the files.
type source struct {
	*outflow
	tree   *chunker.Tree
	chosen *chosen
	// names are what alone is copied; remote is that where the client has them.
	names  chunker.Names
	remote *remoteNames
	// called are the names that the sources get at the destination.
	called  []string
	tally   *Tally
	account *account
	// stream is what is copied instead of the tree, or nil.
	stream *streamSource

	// Guarded by outflow.mu: the entries from settled on, by id modulo
	// entryWindow, and how far each stage has come.
	table     [entryWindow]*srcEntry
	announced uint64 // entries told to the sink
	accepted  uint64 // entries whose data the sink is ready for
	cut       uint64 // entries cut into chunks
	settled   uint64 // entries of which the sink has told what became
	// xattrBytes is of entries that were announced and have not settled.
	xattrBytes int
	ended      bool // there are no more entries
	resends    []*resend
	told       bool // roots are sent

	jobs     chan *outSlot
	failures failures
	stop     <-chan struct{} // the session ends
	over     chan struct{}   // closed when every entry has ended
}

// release closes the files that an interrupted copy left open, and frees what a
// stream was read to. The session's goroutines have ended.
func (s *source) release() error {
	for _, e := range s.table {
		if e != nil {
			e.closeFile()
		}
	}
	return s.stream.release()
}

// resend is a wish of the sink's: extents of a chunk to be sent again.
type resend struct {
	id      uint64
	repair  bool
	tries   int
	extents []extent
	files   []*srcEntry
}

func newSource(s *session, tree *chunker.Tree, tally *Tally, acct *account) *source {
	src := &source{outflow: newOutflow(s), tree: tree, tally: tally, account: acct}
	src.jobs = make(chan *outSlot, sourceSlots(s.params.slots))
	src.failures.wake = make(chan struct{}, 1)
	src.over = make(chan struct{})
	src.commit = src.commitChunk
	src.lost = src.resendLater
	src.returned = src.arrivedChunk
	src.started = tally.firstByte
	return src
}

// talk runs the conversation from the announcement of entries to the
// comparison of roots.
func (s *source) talk(ctx context.Context, g *errgroup.Group) error {
	s.wakeOn(ctx)
	s.stop = ctx.Done()
	var r role = s
	if s.params.flags&flagListed != 0 && !s.client {
		s.remote = newRemoteNames(ctx, s.ctl)
		s.names = s.remote
	}
	s.role.Store(&r)
	g.Go(func() error { return s.makeRing(ctx, sourceSlots(s.params.slots), rdma.LocalRead) })
	if s.stream != nil {
		g.Go(func() error { return s.stream.readStream(ctx) })
		g.Go(func() error { return s.announceStream(ctx) })
	} else {
		g.Go(func() error { return s.announce(ctx) })
	}
	g.Go(func() error { return s.pack(ctx) })
	g.Go(func() error { return s.tellFailures(ctx) })
	for i := range workers() {
		g.Go(func() error { return s.fill(ctx, i) })
	}
	for done := false; !done; {
		err := s.receive(ctx, func(f *frame) (err error) {
			done, err = s.slow(ctx, f)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fast handles what the poller can: slots that come back and plans.
func (s *source) fast(f *frame) (bool, error) {
	switch f.typ {
	case msgCredit:
		return true, s.credit(f.body)
	case msgChoice:
		return true, s.remote.arrived(f.body)
	case msgPlan:
		c := cursor{b: f.body}
		upto := c.uvarint()
		if err := c.err("plan"); err != nil {
			return true, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if upto > s.announced {
			return true, fmt.Errorf("%w: %d entries accepted of %d", ErrProtocol, upto, s.announced)
		}
		s.accepted = max(s.accepted, upto)
		s.cond.Broadcast()
		return true, nil
	case msgUnwanted:
		return true, s.unwanted(f.body)
	}
	return false, nil
}

// slow handles the rest. done is true when the conversation is over.
func (s *source) slow(ctx context.Context, f *frame) (done bool, err error) {
	switch f.typ {
	case msgRing:
		info, err := decodeRing(f.body, s.params.slots, s.params.chunkBytes)
		if err == nil {
			err = s.open(info)
		}
		return false, err
	case msgResult:
		return false, s.result(ctx, f.body)
	case msgDeleted:
		return false, s.deleted(f.body)
	case msgUnsettled:
		return false, s.notSettled(f.body)
	case msgDone:
		theirs, err := decodeRoots(f.body)
		if err != nil {
			return false, err
		}
		s.mu.Lock()
		told := s.told
		s.mu.Unlock()
		if !told {
			return false, fmt.Errorf("%w: done before its time", ErrProtocol)
		}
		s.ending.Store(true) // the sink hangs up, and the manifest may take its time
		return true, s.account.compare(s.peer, theirs)
	}
	return false, fmt.Errorf("%w: message %d at the source", ErrProtocol, f.typ)
}

// result takes what became of entries, in order, and lets new ones in.
func (s *source) result(ctx context.Context, body []byte) error {
	upto, xs, err := decodeResult(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if upto < s.settled || upto > s.announced {
		s.mu.Unlock()
		return fmt.Errorf("%w: entries up to %d settled of %d", ErrProtocol, upto, s.announced)
	}
	from := s.settled
	entries := make([]*srcEntry, 0, upto-from)
	for id := from; id < upto; id++ {
		entries = append(entries, s.table[id%entryWindow])
	}
	s.mu.Unlock()
	for _, e := range entries {
		var x *exception
		if len(xs) > 0 && xs[0].entry == e.id {
			x, xs = &xs[0], xs[1:]
		}
		if err := s.settle(e, x); err != nil {
			return err
		}
	}
	if len(xs) > 0 {
		return fmt.Errorf("%w: result for entry %d out of order", ErrProtocol, xs[0].entry)
	}
	s.mu.Lock()
	for id := from; id < upto; id++ {
		s.xattrBytes -= s.table[id%entryWindow].xattrBytes
		s.table[id%entryWindow] = nil
	}
	s.settled = upto
	over := s.ended && s.settled == s.announced && !s.told
	s.told = s.told || over
	s.cond.Broadcast()
	s.mu.Unlock()
	if over {
		return s.tellRoots(ctx)
	}
	return nil
}

// settle books one entry's end.
func (s *source) settle(e *srcEntry, x *exception) error {
	mine := e.failed()
	if err := s.checkUnsent(e, x); mine == nil && err != nil {
		return err
	}
	switch {
	case mine != nil && x == nil:
		return fmt.Errorf("%w: the peer published %q, which is %s here", ErrIntegrity, e.Path, mine.text)
	case mine != nil:
		x = mine
	case x != nil:
		x.text, x.theirs = printable.Text(x.text), true
		// Whatever of it is still to be read or sent is not wanted any more.
		e.giveUp(x.outcome, x.text)
	}
	if err := e.settleNames(x); err != nil {
		return err
	}
	e.settled.Store(true)
	s.tally.step()
	e.closeFile()
	return s.account.settle(&e.booking, x)
}

// tellRoots sends this end's roots when every entry has ended.
func (s *source) tellRoots(ctx context.Context) error {
	close(s.over)
	if err := s.awaitRing(ctx); err != nil {
		return err
	}
	r := s.account.finish()
	return s.ctl.send(ctx, msgRoot, r.encode())
}
