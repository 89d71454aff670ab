package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// namesWindow is how many parts of the list the source of a pull may have requested and not used.
// It requests namesMore at a time.
const (
	namesWindow = 16
	namesMore   = namesWindow / 2
)

// remoteNames is the list of a pull, at the source. Only one goroutine reads it.
type remoteNames struct {
	ctx   context.Context
	ctl   *link.Control
	parts chan []byte
	begun bool
	used  int // parts used since the last request
	part  wire.Cursor
	last  bool   // the part is the last one
	path  string // the previous name
	any   bool
}

func newRemoteNames(ctx context.Context, ctl *link.Control) *remoteNames {
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

// Next implements chunker.Names. It blocks until the client has sent the name.
func (r *remoteNames) Next() (fileset.Listed, error) {
	for len(r.part.Buf) == 0 {
		if r.last {
			return fileset.Listed{}, io.EOF
		}
		if err := r.nextPart(); err != nil {
			return fileset.Listed{}, err
		}
	}
	item, err := r.part.ListedName()
	if r.part.Bad {
		err = r.part.Err("list of names")
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
		if err := r.ctl.Send(r.ctx, wire.MsgSelection, append(wire.SelectionPart(wire.SelectionWanted), byte(wanted))); err != nil {
			return err
		}
	}
	select {
	case body := <-r.parts:
		kind, last, c, err := wire.DecodeSelection(body)
		if err == nil && (kind != wire.SelectionNames || len(c.Buf) == 0 && !last) {
			err = fmt.Errorf("%w: a selection of kind %d and %d bytes in the list", ErrProtocol, kind, len(c.Buf))
		}
		r.part, r.last = c, last
		r.used++
		return err
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
}

// namesTeller is the list of a pull, at the sink, which sends it.
type namesTeller struct {
	names chunker.Names
	// wanted holds how many more parts the source has requested.
	wanted chan int
	room   int // parts that may be sent
}

func newNamesTeller(names chunker.Names) *namesTeller {
	return &namesTeller{names: names, wanted: make(chan int, namesWindow)}
}

// hearWanted processes the source's request for more parts.
func (t *namesTeller) hearWanted(body []byte) error {
	kind, _, c, err := wire.DecodeSelection(body)
	n := c.Byte()
	if err == nil {
		err = c.Err("wish for names")
	}
	if err != nil {
		return err
	}
	if t != nil && kind == wire.SelectionWanted && n > 0 && n <= namesWindow {
		select {
		case t.wanted <- int(n):
			return nil
		default:
		}
	}
	return fmt.Errorf("%w: a wish for %d parts of a list", ErrProtocol, n)
}

// tell sends the list as the source requests it.
func (t *namesTeller) tell(ctx context.Context, ctl *link.Control) error {
	parts := wire.NewSelectionParts(wire.SelectionNames, func(part []byte) error { return t.send(ctx, ctl, part) })
	var name []byte
	for {
		item, err := t.names.Next()
		if errors.Is(err, io.EOF) {
			return parts.End()
		}
		if err != nil {
			return err
		}
		name = wire.AppendName(name[:0], &item)
		if err := parts.Add(name); err != nil {
			return err
		}
	}
}

// send sends a part when the source wants one.
func (t *namesTeller) send(ctx context.Context, ctl *link.Control, part []byte) error {
	for t.room == 0 {
		select {
		case n := <-t.wanted:
			t.room += n
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	t.room--
	return ctl.Send(ctx, wire.MsgSelection, part)
}
