package xfer

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"gdrcp/chunker"
	"gdrcp/internal/printable"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// entryWindow is how many entries may be announced and not yet ended. It bounds the memory of both
// ends, and is several batches of publication.
const entryWindow = 8192

// source is the end that has the files.
type source struct {
	Session *flow.Session
	sender  *chunkSender
	tree    *chunker.Tree
	filter  *entryFilter
	// names lists the only entries to copy. remote is the same list if the client has it.
	names  chunker.Names
	remote *remoteNames
	// called are the names of the sources at the destination.
	called  []string
	tally   *Tally
	results *copyResults
	// stream is copied in place of the tree, or nil.
	stream *streamSource

	window   sourceWindow
	warnings int // that the sink has sent

	jobs     flow.SlotQueue[*outSlot]
	turns    flow.Turns
	failures failures
	stop     <-chan struct{} // closed when the session ends
	over     chan struct{}   // closed when every entry has ended
	granted  chan struct{}   // closed when the sink has its ring
}

// sourceWindow holds the entries that were announced and have not settled, and the progress of each
// step. The Sender's lock guards it, because the goroutine that waits for entries to cut also waits
// for slots.
type sourceWindow struct {
	table     [entryWindow]*srcEntry // from settled on, by id modulo entryWindow
	announced uint64                 // entries announced to the sink
	accepted  uint64                 // entries whose data the sink is ready for
	cut       uint64                 // entries that were cut into chunks, or are among cutting
	cutting   cutting
	settled   uint64 // entries whose outcome the sink has reported
	// xattrBytes counts those of entries that were announced and have not settled.
	xattrBytes int
	ended      bool // no more entries come
	resends    []*resend
	rootsSent  bool
}

// release closes the files that an interrupted copy left open, and frees the buffers of
// a stream. The session's goroutines must have ended.
func (s *source) release() error {
	for _, e := range s.window.table {
		if e != nil {
			e.closeFile()
		}
	}
	return s.stream.release()
}

// resend is a request of the sink: extents of a chunk to send again.
type resend struct {
	id      uint64
	repair  bool
	extents []wire.Extent
	files   []*srcEntry
	// See flow.Chunk.
	tries, headerTries int
}

func newSource(s *flow.Session, tree *chunker.Tree, tally *Tally, acct *copyResults) *source {
	src := &source{Session: s, sender: newChunkSender(s), tree: tree, tally: tally, results: acct, turns: flow.NewTurns()}
	src.jobs = flow.NewSlotQueue[*outSlot](flow.SourceSlots(s.Terms.Slots))
	src.failures.wake = make(chan struct{}, 1)
	src.over, src.granted = make(chan struct{}), make(chan struct{})
	src.window.cutting.most = cmp.Or(s.Terms.Transfers, DefaultTransfers)
	if s.Files != nil && tree != nil {
		// The large files, the small one that is being cut, and one more.
		tree.MayOpen(s.Files, src.window.cutting.most+2)
	}
	src.sender.Commit = src.commitChunk
	src.sender.Lost = src.resendLater
	src.sender.Moved = src.resendMoved
	src.sender.Returned = src.arrivedChunk
	src.sender.Started = tally.Posted
	return src
}

// talk runs the conversation, from the announcement of entries to the comparison of
// roots.
func (s *source) talk(ctx context.Context, g *errgroup.Group) error {
	s.sender.WakeOn(ctx)
	s.stop = ctx.Done()
	if s.tree != nil {
		s.tree.ReadBy(s.Session.Terms.IO)
	}
	if s.Session.Terms.Flags&wire.FlagListed != 0 && !s.Session.Client {
		s.remote = newRemoteNames(ctx, s.Session.Ctl)
		s.names = s.remote
	}
	s.Session.Begin(s)
	g.Go(func() error { return s.Session.MakeRing(ctx, flow.SourceSlots(s.Session.Terms.Slots), rdma.LocalRead) })
	if s.stream != nil {
		g.Go(func() error { return s.stream.readStream(ctx) })
		g.Go(func() error { return s.announceStream(ctx) })
	} else {
		g.Go(func() error {
			if s.results.tries.announcesLate(&s.Session.Terms) {
				if err := s.awaitRings(ctx); err != nil {
					return err
				}
			}
			return s.announce(ctx)
		})
	}
	g.Go(func() error { return s.pack(ctx) })
	g.Go(func() error { return s.tellFailures(ctx) })
	if s.Session.RingWish.Placement.GPU == wire.GPUOff {
		s.Session.Workers.Store(int32(s.Session.DiskWorkers()))
	}
	for i := range s.Session.DiskWorkers() {
		g.Go(func() error { return s.fill(ctx, i) })
	}
	return s.Session.Converse(ctx, s.slow)
}

// The session calls these about the progress of chunks. They belong to its sender.

func (s *source) Done(l *link.Link, id uint64)             { s.sender.Done(l, id) }
func (s *source) Immediate(_ *link.Link, imm uint32) error { return s.sender.Immediate(imm) }
func (s *source) Opened()                                  { s.sender.Opened() }

// Fast handles the messages that the poller can: returned slots, parts of a list, plans, unwanted
// entries, the results of an earlier copy, and comparisons.
func (s *source) Fast(f *wire.Frame) (bool, error) {
	switch f.Type {
	case wire.MsgCredit:
		return true, s.sender.Credit(f.Body)
	case wire.MsgSelection:
		return true, s.remote.arrived(f.Body)
	case wire.MsgPlan:
		c := wire.Cursor{Buf: f.Body}
		upto := c.Uvarint()
		if err := c.Err("plan"); err != nil {
			return true, err
		}
		s.sender.Mu.Lock()
		defer s.sender.Mu.Unlock()
		if upto > s.window.announced {
			return true, fmt.Errorf("%w: %d entries accepted of %d", ErrProtocol, upto, s.window.announced)
		}
		s.window.accepted = max(s.window.accepted, upto)
		s.sender.Cond.Broadcast()
		return true, nil
	case wire.MsgUnwanted:
		return true, s.hearUnwanted(f.Body)
	case wire.MsgArrived:
		return true, s.hearArrived(f.Body)
	case wire.MsgBasis:
		return true, s.hearBasis(f.Body)
	}
	return false, nil
}

// slow handles all other messages. done is true when the conversation is over.
func (s *source) slow(ctx context.Context, f *wire.Frame) (done bool, err error) {
	switch f.Type {
	case wire.MsgRing:
		return false, s.hearRing(f.Body)
	case wire.MsgResult:
		return false, s.hearResult(ctx, f.Body)
	case wire.MsgDeleted:
		return false, s.hearDeleted(f.Body)
	case wire.MsgUnsettled:
		return false, s.hearUnsettled(f.Body)
	case wire.MsgUnkept:
		return false, hearUnkept(s.Session, f.Body, s.results)
	case wire.MsgWarning:
		return false, s.hearWarning(f.Body)
	case wire.MsgWritten:
		return false, s.hearWritten(f.Body)
	case wire.MsgDone:
		theirs, err := s.hearDone(f.Body)
		if err != nil {
			return false, err
		}
		s.sender.Mu.Lock()
		told := s.window.rootsSent
		s.sender.Mu.Unlock()
		if !told {
			return false, fmt.Errorf("%w: the sink ended before the roots were sent", ErrProtocol)
		}
		s.Session.Ending.Store(true) // the sink hangs up, and the manifest may take a while
		return true, s.results.compare(s.Session.Peer, theirs)
	}
	return false, fmt.Errorf("%w: message %d at the source", ErrProtocol, f.Type)
}

// hearResult records the outcomes of entries, in order, and so makes room for new entries.
func (s *source) hearResult(ctx context.Context, body []byte) error {
	upto, xs, err := wire.DecodeResult(body)
	if err != nil {
		return err
	}
	s.sender.Mu.Lock()
	if upto < s.window.settled || upto > s.window.announced {
		s.sender.Mu.Unlock()
		return fmt.Errorf("%w: entries up to %d settled of %d", ErrProtocol, upto, s.window.announced)
	}
	from := s.window.settled
	entries := make([]*srcEntry, 0, upto-from)
	for id := from; id < upto; id++ {
		entries = append(entries, s.window.table[id%entryWindow])
	}
	s.sender.Mu.Unlock()
	for _, e := range entries {
		var x *wire.Exception
		if len(xs) > 0 && xs[0].Entry == e.id {
			x, xs = &xs[0], xs[1:]
		}
		if err := s.settle(e, x); err != nil {
			return err
		}
	}
	if len(xs) > 0 {
		return fmt.Errorf("%w: result for entry %d out of order", ErrProtocol, xs[0].Entry)
	}
	s.sender.Mu.Lock()
	for id := from; id < upto; id++ {
		s.window.xattrBytes -= s.window.table[id%entryWindow].xattrBytes
		s.window.table[id%entryWindow] = nil
	}
	s.window.settled = upto
	over := s.window.ended && s.window.settled == s.window.announced && !s.window.rootsSent
	s.window.rootsSent = s.window.rootsSent || over
	s.sender.Cond.Broadcast()
	s.sender.Mu.Unlock()
	if over {
		return s.tellRoots(ctx)
	}
	return nil
}

// settle books the end of one entry.
func (s *source) settle(e *srcEntry, x *wire.Exception) error {
	mine := e.failed()
	if err := s.checkUnsent(e, x); mine == nil && err != nil {
		return err
	}
	switch {
	case mine != nil && x == nil:
		return fmt.Errorf("%w: the peer published %q, which is %s here", ErrIntegrity, e.Path, mine.Text)
	case mine != nil:
		broken := strings.Contains(x.Text, errHalfWritten.Error()) // only the peer knows that
		x = mine
		if broken {
			told := *mine
			told.Text += "; " + errHalfWritten.Error()
			x = &told
		}
	case x != nil:
		x.Text, x.Theirs = printable.Text(x.Text), true
		// The rest of the entry need not be read or sent any more.
		e.giveUp(x.Outcome, x.Text)
	}
	if err := e.bookNames(x); err != nil {
		return err
	}
	e.settled.Store(true)
	s.tally.Step()
	e.closeFile()
	return s.results.book(&e.entryState, x)
}

// tellRoots sends this end's roots when every entry has ended.
func (s *source) tellRoots(ctx context.Context) error {
	close(s.over)
	if err := s.Session.AwaitMemoryTold(ctx); err != nil {
		return err
	}
	if err := s.tellUse(ctx); err != nil {
		return err
	}
	r := s.results.finish()
	return s.Session.Ctl.Send(ctx, wire.MsgRoot, r.Encode())
}
