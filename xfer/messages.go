package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/manifest"
)

// Tags of an entry's fields in msgEntries.
const (
	tagEntType   = 1 | mustUnderstand
	tagEntPath   = 2 | mustUnderstand
	tagEntSize   = 3 | mustUnderstand
	tagEntMode   = 4 | mustUnderstand
	tagEntMtime  = 5 | mustUnderstand // zigzag nanoseconds
	tagEntTarget = 6 | mustUnderstand
	tagEntAlloc  = 7 // bytes it needs on disk, where that is not its size
	tagEntSparse = 8
	tagEntStream = 0x0e | mustUnderstand
	tagEntOther  = 0x0f | mustUnderstand // another file system is mounted there
)

// planned is an entry as announced: what the manifest has, and what the sink
// must know to prepare for it.
type planned struct {
	manifest.Entry
	owners
	names      fileNames
	sparse     bool
	stream     bool // its size is known at its end
	elsewhere  bool // the source stays out of the directory, and nothing in it is deleted
	allocBytes int64
}

// appendEntry appends one entry: a uvarint length and its fields.
func appendEntry(b []byte, e *planned, scratch *tlvWriter) []byte {
	w := scratch
	w.b = w.b[:0]
	w.uint(tagEntType, uint64(e.Type))
	w.str(tagEntPath, e.Path)
	w.uint(tagEntMode, uint64(e.Mode))
	w.uint(tagEntMtime, uint64(e.MtimeNs<<1)^uint64(e.MtimeNs>>63))
	if e.stream {
		w.uint(tagEntStream, 1)
	} else if e.Size != 0 {
		w.uint(tagEntSize, uint64(e.Size))
	}
	if e.Type == manifest.Symlink {
		w.str(tagEntTarget, e.Target)
	}
	e.owners.appendTo(w)
	e.names.appendTo(w)
	if e.sparse {
		w.uint(tagEntAlloc, uint64(e.allocBytes))
		w.uint(tagEntSparse, 1)
	}
	if e.elsewhere {
		w.uint(tagEntOther, 1)
	}
	b = binary.AppendUvarint(b, uint64(len(w.b)))
	return append(b, w.b...)
}

// decodeEntries walks the body of msgEntries: the id of its first entry, then
// entries. It checks each entry by itself; their order is for the roots.
func decodeEntries(body []byte, each func(id uint64, e *planned) error) error {
	c := cursor{b: body}
	id := c.uvarint()
	for len(c.b) > 0 {
		v := c.take(c.uvarint())
		if c.bad {
			break
		}
		e, err := decodeEntry(v)
		if err != nil {
			return fmt.Errorf("entry %d: %w", id, err)
		}
		if err := each(id, &e); err != nil {
			return err
		}
		id++
	}
	return c.err("list of entries")
}

func decodeEntry(b []byte) (e planned, err error) {
	r := tlvReader{b}
	e.allocBytes = -1
	for {
		tag, v, ok, err := r.next()
		if err != nil {
			return e, err
		}
		if !ok {
			break
		}
		if err := e.field(tag, v); err != nil {
			return e, err
		}
	}
	if e.allocBytes < 0 || e.allocBytes > e.Size {
		e.allocBytes = e.Size
	}
	if e.names.several && e.Type != manifest.File {
		return e, fmt.Errorf("%w: another name of what is no file", ErrProtocol)
	}
	if e.elsewhere && e.Type != manifest.Dir {
		return e, fmt.Errorf("%w: another file system on what is no directory", ErrProtocol)
	}
	if err := e.Check(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if e.stream {
		return e, e.asStream()
	}
	return e, nil
}

func (e *planned) field(tag byte, v []byte) error {
	switch tag {
	case tagEntPath:
		e.Path = string(v)
		return nil
	case tagEntTarget:
		e.Target = string(v)
		return nil
	case tagEntLink:
		return e.names.decode(v)
	case tagEntType, tagEntSize, tagEntMode, tagEntMtime, tagEntAlloc, tagEntSparse, tagEntStream, tagEntOther:
	default:
		return e.owners.field(tag, v)
	}
	u, err := tlvUint(tag, v)
	if err != nil {
		return err
	}
	switch tag {
	case tagEntType:
		e.Type = manifest.EntryType(u)
		if u > 255 {
			return fmt.Errorf("%w: entry of type %d", ErrProtocol, u)
		}
	case tagEntSize, tagEntAlloc:
		if u > maxFileBytes {
			return fmt.Errorf("%w: size %d", ErrProtocol, u)
		}
		if tag == tagEntSize {
			e.Size = int64(u)
		} else {
			e.allocBytes = int64(u)
		}
	case tagEntMode:
		if u > 0o7777 {
			return fmt.Errorf("%w: mode %#o", ErrProtocol, u)
		}
		e.Mode = uint32(u)
	case tagEntMtime:
		e.MtimeNs = int64(u>>1) ^ -int64(u&1)
	case tagEntSparse:
		e.sparse = u != 0
	case tagEntStream:
		if u != 1 {
			return fmt.Errorf("%w: stream %d", ErrProtocol, u)
		}
		e.stream = true
	case tagEntOther:
		if u != 1 {
			return fmt.Errorf("%w: other file system %d", ErrProtocol, u)
		}
		e.elsewhere = true
	}
	return nil
}

// totals is the body of msgTotal.
type totals struct {
	entries, bytes uint64
	final          bool // nothing more will be found
}

func (t *totals) encode() []byte {
	b := binary.AppendUvarint(nil, t.entries)
	b = binary.AppendUvarint(b, t.bytes)
	if t.final {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeTotals(b []byte) (t totals, err error) {
	c := cursor{b: b}
	t = totals{entries: c.uvarint(), bytes: c.uvarint()}
	final := c.byte()
	t.final = final == 1
	if err := c.err("total"); err != nil {
		return t, err
	}
	if t.bytes > maxFileBytes || final > 1 {
		return t, fmt.Errorf("%w: a total of %d bytes, final %d", ErrProtocol, t.bytes, final)
	}
	return t, nil
}

// returned is one slot in msgCredit.
type returned struct {
	slot       uint32
	generation uint64
	// again: the whole chunk is wanted again, its header was damaged.
	again bool
	// bad lists the extents that are wanted again, by index in the chunk.
	bad []uint16
}

// appendReturned appends one slot: slot, generation, then 0, or 1 for the
// whole chunk, or 2 with a count and indices.
func appendReturned(b []byte, r *returned) []byte {
	b = binary.AppendUvarint(b, uint64(r.slot))
	b = binary.AppendUvarint(b, r.generation)
	switch {
	case r.again:
		b = append(b, 1)
	case len(r.bad) > 0:
		b = append(b, 2)
		b = binary.AppendUvarint(b, uint64(len(r.bad)))
		for _, i := range r.bad {
			b = binary.AppendUvarint(b, uint64(i))
		}
	default:
		b = append(b, 0)
	}
	return b
}

// decodeCredit walks the body of msgCredit. bad is reused between calls.
func decodeCredit(body []byte, bad []uint16, each func(r *returned) error) error {
	c := cursor{b: body}
	var r returned
	for len(c.b) > 0 {
		slot := c.uvarint()
		r = returned{slot: uint32(slot), generation: c.uvarint(), bad: bad[:0]}
		switch c.byte() {
		case 0:
		case 1:
			r.again = true
		case 2:
			n := c.uvarint()
			if n > maxExtents {
				return fmt.Errorf("%w: %d bad extents in a chunk", ErrProtocol, n)
			}
			for range n {
				i := c.uvarint()
				if i >= maxExtents || (len(r.bad) > 0 && i <= uint64(r.bad[len(r.bad)-1])) {
					return fmt.Errorf("%w: extent %d of a chunk out of order", ErrProtocol, i)
				}
				r.bad = append(r.bad, uint16(i))
			}
		default:
			return fmt.Errorf("%w: slot returned with an unknown wish", ErrProtocol)
		}
		if c.bad || slot >= maxSlots {
			return fmt.Errorf("%w: bad list of slots", ErrProtocol)
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	return c.err("list of slots")
}

// Outcome says what became of an entry.
type Outcome uint8

// The outcomes.
const (
	Copied Outcome = iota
	// Skipped: a socket, fifo or device.
	Skipped
	// Failed: it could not be read or written.
	Failed
	// Changed: it changed while it was read.
	Changed
	// Corrupt: a piece did not verify, however often it was sent, or the
	// file is not what the given manifest says.
	Corrupt
	// Kept: the destination keeps what it has, as the options want it.
	Kept
)

// exception is an entry that was not copied.
type exception struct {
	entry   uint64
	outcome Outcome
	text    string
	theirs  bool // not on the wire: the other end found it out
}

// end is the end that an exception is of. That bytes are not what they are to be
// is a matter of both, and that something is kept none of either's.
func (x *exception) end() End {
	switch {
	case x.outcome == Corrupt, x.outcome == Kept:
		return NoEnd
	case x.theirs:
		return OtherEnd
	}
	return ThisEnd
}

// appendException appends entry id, outcome and text, which is cut to fit a
// message.
func appendException(b []byte, x *exception) []byte {
	text := x.text
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes]
	}
	b = binary.AppendUvarint(b, x.entry)
	b = append(b, byte(x.outcome))
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// maxTextBytes bounds a message to a person from the peer.
const maxTextBytes = 4000

func (c *cursor) exception() exception {
	return exception{entry: c.uvarint(), outcome: Outcome(c.byte()), text: c.str()}
}

// decodeResult walks the body of msgResult: entries below upto have ended, all
// as Copied but for the exceptions that follow.
func decodeResult(body []byte) (upto uint64, xs []exception, err error) {
	c := cursor{b: body}
	upto = c.uvarint()
	for len(c.b) > 0 && !c.bad {
		x := c.exception()
		if x.outcome == Copied || x.outcome > Kept || len(x.text) > maxTextBytes {
			return 0, nil, fmt.Errorf("%w: outcome %d", ErrProtocol, x.outcome)
		}
		xs = append(xs, x)
	}
	return upto, xs, c.err("result")
}

// roots is the body of msgRoot and msgDone: what each end makes of all that
// was copied.
type roots struct {
	content, meta  [32]byte
	entries, bytes uint64
}

const rootsBytes = 80

func (r *roots) encode() []byte {
	b := make([]byte, 0, rootsBytes)
	b = append(b, r.content[:]...)
	b = append(b, r.meta[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.entries)
	return binary.LittleEndian.AppendUint64(b, r.bytes)
}

func decodeRoots(b []byte) (r roots, err error) {
	if len(b) != rootsBytes {
		return r, fmt.Errorf("%w: roots of %d bytes", ErrProtocol, len(b))
	}
	copy(r.content[:], b)
	copy(r.meta[:], b[32:])
	r.entries, r.bytes = binary.LittleEndian.Uint64(b[64:]), binary.LittleEndian.Uint64(b[72:])
	return r, nil
}

// abort is the body of msgAbort: a class and a line for a person.
type abort struct {
	class ErrorClass
	text  string
}

func (a *abort) encode() []byte {
	text := a.text
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes]
	}
	return append([]byte{byte(a.class)}, text...)
}

func decodeAbort(b []byte) (a abort, err error) {
	if len(b) == 0 || len(b) > maxTextBytes+1 {
		return a, fmt.Errorf("%w: abort of %d bytes", ErrProtocol, len(b))
	}
	return abort{ErrorClass(b[0]), string(b[1:])}, nil
}
