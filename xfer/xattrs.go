package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/chunker"
)

// Extended attributes do not fit the message that announces their entry: they
// come before it, in parts.

// msgXattrs is from the source: parts of the attributes of entries that are
// announced next. Each part is uvarint id of the entry, uvarint bytes of all its
// attributes, uvarint offset of this part, uvarint length and bytes.
const msgXattrs msgType = 17

const (
	// xattrWindow bounds the attributes of entries that have not ended. It holds
	// those of several entries (chunker.MaxXattrsBytes).
	xattrWindow = 8 << 20
	// xattrPartBytes bounds what stands before a part's bytes.
	xattrPartBytes = 4 * binary.MaxVarintLen64
)

// appendXattrs appends as much of an entry's attributes, from off on, as room
// has, and returns how far it has come.
func appendXattrs(b []byte, id uint64, x chunker.Xattrs, off, room int) ([]byte, int) {
	n := min(room-xattrPartBytes-len(b), len(x)-off)
	if n <= 0 {
		return b, off
	}
	b = appendUvarints(b, id, uint64(len(x)), uint64(off), uint64(n))
	return append(b, x[off:off+n]...), off + n
}

func appendUvarints(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

// xattrPart is a part as it arrives.
type xattrPart struct {
	id, total, off uint64
	bytes          []byte
}

// decodeXattrs walks the body of msgXattrs.
func decodeXattrs(body []byte, each func(p *xattrPart) error) error {
	c := cursor{b: body}
	for len(c.b) > 0 {
		p := xattrPart{id: c.uvarint(), total: c.uvarint(), off: c.uvarint()}
		p.bytes = c.take(c.uvarint())
		if c.bad {
			break
		}
		if p.total > chunker.MaxXattrsBytes || len(p.bytes) == 0 || p.off > p.total || uint64(len(p.bytes)) > p.total-p.off {
			return fmt.Errorf("%w: %d bytes at %d of %d of extended attributes", ErrProtocol, len(p.bytes), p.off, p.total)
		}
		if err := each(&p); err != nil {
			return err
		}
	}
	return c.err("list of extended attributes")
}

// xattrsOf reads the attributes of what is to be announced.
func (a *announcer) xattrsOf(f *chunker.Found) (chunker.Xattrs, error) {
	if a.params.flags&flagXattrs == 0 {
		return nil, nil
	}
	return patiently(a.stop, func() (chunker.Xattrs, error) { return a.tree.Xattrs(f) })
}

// tellXattrs sends the attributes of an entry, or keeps them with others' until
// the message is full.
func (a *announcer) tellXattrs(id uint64, x chunker.Xattrs) error {
	a.mu.Lock()
	a.xattrBytes += len(x)
	a.mu.Unlock()
	for off := 0; off < len(x); {
		a.parts, off = appendXattrs(a.parts, id, x, off, maxBodyBytes)
		if off < len(x) {
			if err := a.flushXattrs(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *announcer) flushXattrs() error {
	if len(a.parts) == 0 {
		return nil
	}
	err := a.ctl.send(a.ctx, msgXattrs, a.parts)
	a.parts = a.parts[:0]
	return err
}

// pendingXattrs are the attributes of entries that are not announced yet, at
// the sink.
type pendingXattrs map[uint64]*arrivingXattrs

type arrivingXattrs struct {
	total int
	bytes chunker.Xattrs
}

// takeXattrs takes parts of attributes. They must be of the entries that come next,
// and whole before these do.
func (k *sink) takeXattrs(body []byte) error {
	if k.params.flags&flagXattrs == 0 {
		return fmt.Errorf("%w: extended attributes that were not asked for", ErrProtocol)
	}
	return decodeXattrs(body, func(p *xattrPart) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if p.id < k.announced || p.id-k.settled >= entryWindow || k.ended {
			return fmt.Errorf("%w: extended attributes of entry %d, %d was next", ErrProtocol, p.id, k.announced)
		}
		x := k.xattrs[p.id]
		if x == nil {
			if k.xattrBytes+int(p.total) > xattrWindow {
				return fmt.Errorf("%w: more than %d bytes of extended attributes at once", ErrProtocol, xattrWindow)
			}
			k.xattrBytes += int(p.total)
			if k.xattrs == nil {
				k.xattrs = make(pendingXattrs)
			}
			x = &arrivingXattrs{total: int(p.total), bytes: make(chunker.Xattrs, 0, p.total)}
			k.xattrs[p.id] = x
		}
		if uint64(x.total) != p.total || uint64(len(x.bytes)) != p.off {
			return fmt.Errorf("%w: extended attributes of entry %d in pieces that do not fit", ErrProtocol, p.id)
		}
		x.bytes = append(x.bytes, p.bytes...)
		return nil
	})
}

// giveXattrs hands an entry that is announced what came for it before.
func (k *sink) giveXattrs(e *sinkEntry) error {
	k.mu.Lock()
	x := k.xattrs[e.id]
	delete(k.xattrs, e.id)
	k.mu.Unlock()
	if x == nil {
		return nil
	}
	if len(x.bytes) != x.total {
		return fmt.Errorf("%w: %q announced with %d of %d bytes of its extended attributes", ErrProtocol, e.Path, len(x.bytes), x.total)
	}
	if err := chunker.CheckXattrs(x.bytes); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrProtocol, e.Path, err)
	}
	if e.attrs == nil {
		e.attrs = &chunker.Attributes{UID: -1, GID: -1}
	}
	e.attrs.Xattrs, e.xattrBytes = x.bytes, x.total
	return nil
}
