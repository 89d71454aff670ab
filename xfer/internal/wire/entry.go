package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"gdrcp/manifest"
)

// The tags of an entry's fields in MsgEntries.
const (
	tagEntType   = 1 | MustUnderstand
	TagEntPath   = 2 | MustUnderstand
	tagEntSize   = 3 | MustUnderstand
	tagEntMode   = 4 | MustUnderstand
	tagEntMtime  = 5 | MustUnderstand // zigzag nanoseconds
	TagEntTarget = 6 | MustUnderstand
	tagEntAlloc  = 7 // bytes that it needs on disk, if different from its size
	tagEntSparse = 8
	tagEntUID    = 9 | MustUnderstand
	tagEntGID    = 10 | MustUnderstand
	tagEntUser   = 11 | MustUnderstand
	tagEntGroup  = 12 | MustUnderstand
	// tagEntLink is for an entry that is one of several names of a file. It has the
	// uvarint id of the first name's entry, which may be the entry itself, and the uvarint
	// number of names that still follow.
	tagEntLink   = 13 | MustUnderstand
	tagEntStream = 14 | MustUnderstand
	tagEntOther  = 15 | MustUnderstand // another file system is mounted there
	tagEntSource = 16                  // the SourceMark of a file
)

// AnnouncedEntry is an entry as announced: what the manifest has, and what the sink needs
// to prepare for it.
type AnnouncedEntry struct {
	manifest.Entry
	Owners
	Names      FileNames
	Sparse     bool
	Stream     bool // its size is known only at the end
	Elsewhere  bool // the source does not enter the directory, and nothing in it is deleted
	AllocBytes int64
	Source     SourceMark
}

// AppendEntry appends one entry: a uvarint length and its fields.
func AppendEntry(b []byte, e *AnnouncedEntry, scratch *Writer) []byte {
	w := scratch
	w.Buf = w.Buf[:0]
	w.Uint(tagEntType, uint64(e.Type))
	w.Str(TagEntPath, e.Path)
	w.Uint(tagEntMode, uint64(e.Mode))
	w.Uint(tagEntMtime, uint64(e.MtimeNs<<1)^uint64(e.MtimeNs>>63))
	if e.Stream {
		w.Uint(tagEntStream, 1)
	} else if e.Size != 0 {
		w.Uint(tagEntSize, uint64(e.Size))
	}
	if e.Type == manifest.Symlink {
		w.Str(TagEntTarget, e.Target)
	}
	e.Owners.appendTo(w)
	e.Names.appendTo(w)
	if e.Sparse {
		w.Uint(tagEntAlloc, uint64(e.AllocBytes))
		w.Uint(tagEntSparse, 1)
	}
	if e.Elsewhere {
		w.Uint(tagEntOther, 1)
	}
	if e.Source != (SourceMark{}) {
		w.Str(tagEntSource, string(e.Source[:]))
	}
	b = binary.AppendUvarint(b, uint64(len(w.Buf)))
	return append(b, w.Buf...)
}

// DecodeEntries calls each for the entries in the body of MsgEntries. The body has the id
// of its first entry, followed by the entries. DecodeEntries checks each entry in
// isolation. The order of entries is checked by the roots.
func DecodeEntries(body []byte, each func(id uint64, e *AnnouncedEntry) error) error {
	c := Cursor{Buf: body}
	id := c.Uvarint()
	for len(c.Buf) > 0 {
		v := c.Take(c.Uvarint())
		if c.Bad {
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
	return c.Err("list of entries")
}

func decodeEntry(b []byte) (e AnnouncedEntry, err error) {
	r := Reader{b}
	e.AllocBytes = -1
	for {
		tag, v, ok, err := r.Next()
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
	if e.AllocBytes < 0 || e.AllocBytes > e.Size {
		e.AllocBytes = e.Size
	}
	if e.Names.Several && e.Type != manifest.File {
		return e, fmt.Errorf("%w: a hard link that is not a file", ErrProtocol)
	}
	if e.Source != (SourceMark{}) && (e.Type != manifest.File || e.Size == 0) {
		return e, fmt.Errorf("%w: the mark of what is no file with data", ErrProtocol)
	}
	if e.Elsewhere && e.Type != manifest.Dir {
		return e, fmt.Errorf("%w: another file system on what is no directory", ErrProtocol)
	}
	if err := e.Check(); err != nil {
		return e, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if e.Stream {
		return e, e.asStream()
	}
	return e, nil
}

func (e *AnnouncedEntry) field(tag byte, v []byte) error {
	switch tag {
	case TagEntPath:
		e.Path = string(v)
		return nil
	case TagEntTarget:
		e.Target = string(v)
		return nil
	case tagEntLink:
		return e.Names.decode(v)
	case tagEntSource:
		if len(v) != len(e.Source) {
			return fmt.Errorf("%w: a mark of %d bytes", ErrProtocol, len(v))
		}
		copy(e.Source[:], v)
		return nil
	case tagEntType, tagEntSize, tagEntMode, tagEntMtime, tagEntAlloc, tagEntSparse, tagEntStream, tagEntOther:
	default:
		return e.Owners.ownerField(tag, v)
	}
	u, err := DecodeUint(tag, v)
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
		if u > MaxFileBytes {
			return fmt.Errorf("%w: size %d", ErrProtocol, u)
		}
		if tag == tagEntSize {
			e.Size = int64(u)
		} else {
			e.AllocBytes = int64(u)
		}
	case tagEntMode:
		if u > 0o7777 {
			return fmt.Errorf("%w: mode %#o", ErrProtocol, u)
		}
		e.Mode = uint32(u)
	case tagEntMtime:
		e.MtimeNs = int64(u>>1) ^ -int64(u&1)
	case tagEntSparse:
		e.Sparse = u != 0
	case tagEntStream:
		if u != 1 {
			return fmt.Errorf("%w: stream %d", ErrProtocol, u)
		}
		e.Stream = true
	case tagEntOther:
		if u != 1 {
			return fmt.Errorf("%w: other file system %d", ErrProtocol, u)
		}
		e.Elsewhere = true
	}
	return nil
}

// MaxAccountNameBytes bounds the name of a user or group. Linux bounds it by
// LOGIN_NAME_MAX: 256 with the NUL.
const MaxAccountNameBytes = 255

// Owners are the owners of an entry at the source, as far as the copy preserves them. A
// name is empty if the owner has none, and if the copy uses numeric ids.
type Owners struct {
	HasUID, HasGID bool
	UID, GID       uint32
	User, Group    string
}

func (o *Owners) appendTo(w *Writer) {
	if o.HasUID {
		w.Uint(tagEntUID, uint64(o.UID))
	}
	if o.HasGID {
		w.Uint(tagEntGID, uint64(o.GID))
	}
	if o.User != "" {
		w.Str(tagEntUser, o.User)
	}
	if o.Group != "" {
		w.Str(tagEntGroup, o.Group)
	}
}

// ownerField decodes a field about an entry's owner.
func (o *Owners) ownerField(tag byte, v []byte) error {
	switch tag {
	case tagEntUID, tagEntGID:
		u, err := DecodeUint(tag, v)
		if err != nil {
			return err
		}
		if u >= math.MaxUint32 { // to chown(2) this means no change
			return fmt.Errorf("%w: owner or group %d", ErrProtocol, u)
		}
		if tag == tagEntUID {
			o.HasUID, o.UID = true, uint32(u)
		} else {
			o.HasGID, o.GID = true, uint32(u)
		}
	case tagEntUser, tagEntGroup:
		name := string(v)
		if !IsAccountName(name) {
			return fmt.Errorf("%w: name of a user or group of %d bytes", ErrProtocol, len(name))
		}
		if tag == tagEntUser {
			o.User = name
		} else {
			o.Group = name
		}
	default:
		return unknownField(tag)
	}
	return nil
}

// IsAccountName reports whether a name is valid in passwd(5), because it will be looked up
// there.
func IsAccountName(name string) bool {
	return name != "" && len(name) <= MaxAccountNameBytes && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' })
}

// FileNames describes an entry that is one of several names of a file.
type FileNames struct {
	Several bool
	First   uint64 // id of the entry by whose name the file is copied
	Left    uint64 // number of names that still follow
}

func (n *FileNames) appendTo(w *Writer) {
	if n.Several {
		w.Str(tagEntLink, string(binary.AppendUvarint(binary.AppendUvarint(nil, n.First), n.Left)))
	}
}

func (n *FileNames) decode(v []byte) error {
	c := Cursor{Buf: v}
	*n = FileNames{Several: true, First: c.Uvarint(), Left: c.Uvarint()}
	return c.Err("names of a file")
}

// asStream checks an entry that is marked as a stream, and sets its size.
func (e *AnnouncedEntry) asStream() error {
	if e.Type != manifest.File || e.Size != 0 || e.Sparse || e.Names.Several || e.Source != (SourceMark{}) {
		return fmt.Errorf("%w: %q cannot be a stream", ErrProtocol, e.Path)
	}
	e.Size = StreamBytes
	return nil
}
