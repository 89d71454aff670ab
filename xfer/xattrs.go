package xfer

import (
	"fmt"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// Extended attributes do not fit the message that announces their entry. They are sent before it,
// in parts.

// xattrsOf reads the attributes of an entry that will be announced.
func (a *announcer) xattrsOf(f *chunker.Found) (fileset.Xattrs, error) {
	lacks := func(attribute string, err error) error { return a.lacks(f.Entry.Path, attribute, err) }
	acls, err := a.aclsOf(f, lacks)
	if err != nil || !a.src.Session.Terms.Has(wire.FlagXattrs) {
		return acls, err
	}
	x, err := retryOnEMFILE(a.src.stop, func() (fileset.Xattrs, error) { return a.src.tree.Xattrs(f, lacks) })
	if err == nil && len(acls)+len(x) > fileset.MaxXattrsBytes {
		return acls, lacks(fileset.AttributeXattrs, errMuchBesideACLs)
	}
	return append(acls, x...), err
}

// lacks records that an attribute of an entry cannot be read, and returns nil, or err if the entry
// must fail. An earlier attempt has reported entries that it settled.
func (a *announcer) lacks(path, attribute string, err error) error {
	s := a.src.Session
	if s.Terms.Has(wire.FlagRequireAttributes) || !s.KnowsUnkept {
		return err
	}
	if manifest.CheckPath(path) == nil && !s.Terms.HasSettled(path) {
		a.unkept.Add(Unkept{Attribute: attribute, Dir: ".", Entries: 1, First: path, Reason: "cannot be read at the source: " + err.Error()})
	}
	return nil
}

// tellXattrs sends the attributes of an entry, or keeps them with others' until the message is
// full.
func (a *announcer) tellXattrs(id uint64, x fileset.Xattrs) error {
	a.src.sender.Mu.Lock()
	a.src.window.xattrBytes += len(x)
	a.src.sender.Mu.Unlock()
	for off := 0; off < len(x); {
		a.parts, off = wire.AppendXattrs(a.parts, id, x, off, wire.MaxBodyBytes)
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
	err := a.src.Session.Ctl.Send(a.ctx, wire.MsgXattrs, a.parts)
	a.parts = a.parts[:0]
	return err
}

// pendingXattrs are the attributes of entries that are not announced yet, at the sink.
type pendingXattrs map[uint64]*arrivingXattrs

type arrivingXattrs struct {
	total int
	bytes fileset.Xattrs
}

// hearXattrs receives parts of attributes. They must be those of the entries that come next, and
// must be complete before those entries come.
func (k *sink) hearXattrs(body []byte) error {
	if k.Session.Terms.Flags&(wire.FlagXattrs|wire.FlagACLs) == 0 {
		return fmt.Errorf("%w: extended attributes that were not asked for", ErrProtocol)
	}
	return wire.DecodeXattrs(body, func(p *wire.XattrPart) error {
		k.window.mu.Lock()
		defer k.window.mu.Unlock()
		if p.ID < k.window.announced || p.ID-k.window.settled >= entryWindow || k.window.ended {
			return fmt.Errorf("%w: extended attributes of entry %d, %d was next", ErrProtocol, p.ID, k.window.announced)
		}
		x := k.window.xattrs[p.ID]
		if x == nil {
			if k.window.xattrBytes+int(p.Total) > wire.XattrWindow {
				return fmt.Errorf("%w: more than %d bytes of extended attributes at once", ErrProtocol, wire.XattrWindow)
			}
			k.window.xattrBytes += int(p.Total)
			if k.window.xattrs == nil {
				k.window.xattrs = make(pendingXattrs)
			}
			x = &arrivingXattrs{total: int(p.Total), bytes: make(fileset.Xattrs, 0, p.Total)}
			k.window.xattrs[p.ID] = x
		}
		if uint64(x.total) != p.Total || uint64(len(x.bytes)) != p.Off {
			return fmt.Errorf("%w: extended attributes of entry %d in pieces that do not fit", ErrProtocol, p.ID)
		}
		x.bytes = append(x.bytes, p.Bytes...)
		return nil
	})
}

// giveXattrs gives an announced entry the attributes that arrived for it.
func (k *sink) giveXattrs(e *sinkEntry) error {
	k.window.mu.Lock()
	x := k.window.xattrs[e.id]
	delete(k.window.xattrs, e.id)
	k.window.mu.Unlock()
	if x == nil {
		return nil
	}
	if len(x.bytes) != x.total {
		return fmt.Errorf("%w: the peer sent %q with %d of %d bytes of its extended attributes", ErrProtocol, e.Path, len(x.bytes), x.total)
	}
	if err := fileset.CheckXattrs(x.bytes); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrProtocol, e.Path, err)
	}
	if e.attrs == nil {
		e.attrs = &dest.Attributes{UID: -1, GID: -1}
	}
	e.attrs.Xattrs, e.xattrBytes = x.bytes, x.total
	if err := k.takeACLs(e.attrs); err != nil {
		return fmt.Errorf("%w: %q: %w", ErrProtocol, e.Path, err)
	}
	return nil
}
