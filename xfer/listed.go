package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// flagListed: only what a list names is copied, of the one source's contents. In
// a pull the list follows, part by part as the source asks for it.
const flagListed = 1 << 23

// Kinds of msgChoice: names are the client's, the wish for them is the source's.
const (
	choiceNames  = 2
	choiceWanted = 3
)

// The source of a pull has at most namesWindow parts of the list asked for and
// not used, and asks for namesMore at once.
const (
	namesWindow = 16
	namesMore   = namesWindow / 2
)

// Flags of a name on the wire.
const (
	nameNamed = 1 << iota
	nameContents
	nameImplied
	nameFlagsKnown = 1<<iota - 1
)

// appendName appends one name: flags, then the path with its length.
func appendName(b []byte, item *chunker.Listed) []byte {
	var flags byte
	for i, on := range []bool{item.Named, item.Contents, item.Implied} {
		if on {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(item.Path)))
	return append(b, item.Path...)
}

// listedName reads one name.
func (c *cursor) listedName() (chunker.Listed, error) {
	flags := c.byte()
	item := chunker.Listed{
		Path: c.str(), Named: flags&nameNamed != 0, Contents: flags&nameContents != 0, Implied: flags&nameImplied != 0,
	}
	if flags&^nameFlagsKnown != 0 || !item.Named && (item.Contents || !item.Implied) {
		return item, fmt.Errorf("%w: a name with flags %#x", ErrProtocol, flags)
	}
	if err := manifest.CheckPath(item.Path); err != nil {
		return item, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return item, nil
}

// remoteNames is the list of a pull at its source. One goroutine reads it.
type remoteNames struct {
	ctx   context.Context
	ctl   *control
	parts chan []byte
	begun bool
	used  int // parts since more were asked for
	part  cursor
	last  bool   // the part is the last one
	path  string // of the name before
	any   bool
}

func newRemoteNames(ctx context.Context, ctl *control) *remoteNames {
	return &remoteNames{ctx: ctx, ctl: ctl, parts: make(chan []byte, namesWindow)}
}

// arrived takes a part from the poller.
func (r *remoteNames) arrived(body []byte) error {
	if r == nil {
		return fmt.Errorf("%w: a list that nobody asked for", ErrProtocol)
	}
	select {
	case r.parts <- append([]byte(nil), body...):
		return nil
	default:
		return fmt.Errorf("%w: more of the list than was asked for", ErrProtocol)
	}
}

// Next implements chunker.Names. It waits for the client.
func (r *remoteNames) Next() (chunker.Listed, error) {
	for len(r.part.b) == 0 {
		if r.last {
			return chunker.Listed{}, io.EOF
		}
		if err := r.nextPart(); err != nil {
			return chunker.Listed{}, err
		}
	}
	item, err := r.part.listedName()
	if r.part.bad {
		err = r.part.err("list of names")
	}
	if err == nil && r.any && manifest.ComparePaths(r.path, item.Path) >= 0 {
		err = fmt.Errorf("%w: %q comes behind %q in the list", ErrProtocol, item.Path, r.path)
	}
	r.path, r.any = item.Path, true
	return item, err
}

func (r *remoteNames) nextPart() error {
	wanted := 0
	switch {
	case !r.begun:
		r.begun, wanted = true, namesWindow
	case r.used == namesMore:
		r.used, wanted = 0, namesMore
	}
	if wanted > 0 {
		if err := r.ctl.send(r.ctx, msgChoice, append(choicePart(choiceWanted), byte(wanted))); err != nil {
			return err
		}
	}
	select {
	case body := <-r.parts:
		kind, last, c, err := decodeChoice(body)
		if err == nil && (kind != choiceNames || len(c.b) == 0 && !last) {
			err = fmt.Errorf("%w: a choice of kind %d and %d bytes in the list", ErrProtocol, kind, len(c.b))
		}
		r.part, r.last = c, last
		r.used++
		return err
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// namesTeller is the list of a pull at its sink, which tells it.
type namesTeller struct {
	names chunker.Names
	// wanted has how many parts more the source has asked for.
	wanted chan int
	room   int // parts that may be sent
}

func newNamesTeller(names chunker.Names) *namesTeller {
	return &namesTeller{names: names, wanted: make(chan int, namesWindow)}
}

// asked takes the source's wish for more.
func (t *namesTeller) asked(body []byte) error {
	kind, _, c, err := decodeChoice(body)
	n := c.byte()
	if err == nil {
		err = c.err("wish for names")
	}
	if err != nil {
		return err
	}
	if t != nil && kind == choiceWanted && n > 0 && n <= namesWindow {
		select {
		case t.wanted <- int(n):
			return nil
		default:
		}
	}
	return fmt.Errorf("%w: a wish for %d parts of a list", ErrProtocol, n)
}

// tell sends the list as the source asks for it.
func (t *namesTeller) tell(ctx context.Context, ctl *control) error {
	parts := newChoiceParts(choiceNames, func(part []byte) error { return t.send(ctx, ctl, part) })
	var name []byte
	for {
		item, err := t.names.Next()
		if errors.Is(err, io.EOF) {
			return parts.end()
		}
		if err != nil {
			return err
		}
		name = appendName(name[:0], &item)
		if err := parts.add(name); err != nil {
			return err
		}
	}
}

// send sends a part when it is wanted.
func (t *namesTeller) send(ctx context.Context, ctl *control, part []byte) error {
	for t.room == 0 {
		select {
		case n := <-t.wanted:
			t.room += n
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.room--
	return ctl.send(ctx, msgChoice, part)
}
