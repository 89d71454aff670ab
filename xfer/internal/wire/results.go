package wire

import (
	"encoding/binary"
	"fmt"

	"gdrcp/manifest"
)

// Outcome is the result of copying an entry.
type Outcome uint8

// The outcomes.
const (
	Copied Outcome = 0
	// Skipped is a socket, FIFO or device.
	Skipped Outcome = 1
	// Failed is an entry that could not be read or written.
	Failed Outcome = 2
	// Changed is an entry that changed while it was read.
	Changed Outcome = 3
	// Corrupt is a file with a piece that failed verification each time it was sent, or a
	// file that does not match the given manifest.
	Corrupt Outcome = 4
	// Kept is an entry whose counterpart at the destination is kept, as the options
	// require.
	Kept Outcome = 5
)

// Exception is an entry that was not copied.
type Exception struct {
	Entry   uint64
	Outcome Outcome
	Text    string
	Theirs  bool // not on the wire: the peer found the problem
}

// AppendException appends entry id, outcome and text. It truncates the text to fit into a
// message.
func AppendException(b []byte, x *Exception) []byte {
	text := x.Text
	if len(text) > MaxTextBytes {
		text = text[:MaxTextBytes]
	}
	b = binary.AppendUvarint(b, x.Entry)
	b = append(b, byte(x.Outcome))
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// MaxTextBytes bounds a text for people from the peer.
const MaxTextBytes = 4000

// Exception reads one exception.
func (c *Cursor) Exception() Exception {
	return Exception{Entry: c.Uvarint(), Outcome: Outcome(c.Byte()), Text: c.Str()}
}

// DecodeResult decodes the body of MsgResult. All entries below upto have ended. Their
// outcome is Copied, except for the exceptions that follow.
func DecodeResult(body []byte) (upto uint64, xs []Exception, err error) {
	c := Cursor{Buf: body}
	upto = c.Uvarint()
	for len(c.Buf) > 0 && !c.Bad {
		x := c.Exception()
		if x.Outcome == Copied || x.Outcome > Kept || len(x.Text) > MaxTextBytes {
			return 0, nil, fmt.Errorf("%w: outcome %d", ErrProtocol, x.Outcome)
		}
		xs = append(xs, x)
	}
	return upto, xs, c.Err("result")
}

// DeleteOutcome is the result of deleting an entry.
type DeleteOutcome uint8

const (
	DeletedFile     DeleteOutcome = 1 // not a directory: deleted, or in a dry run would be
	DeletedDir      DeleteOutcome = 2 // a directory, likewise
	DeletedNotEmpty DeleteOutcome = 3 // a directory that is kept, because something in it is kept
	DeletedFailed   DeleteOutcome = 4 // it could not be deleted
	DeletedNone     DeleteOutcome = 5 // nothing was deleted, because the source's list is incomplete
)

// AppendDeleted appends an outcome, its path and its reason to the body of MsgDeleted. It
// truncates path and text to fit into a message.
func AppendDeleted(b []byte, f DeleteOutcome, path, text string) []byte {
	b = append(b, byte(f))
	for _, s := range []string{path[:min(len(path), manifest.MaxPathBytes)], text[:min(len(text), MaxTextBytes)]} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// DecodeDeleted calls each for the outcomes in the body of MsgDeleted.
func DecodeDeleted(body []byte, each func(f DeleteOutcome, path, text string)) error {
	c := Cursor{Buf: body}
	for len(c.Buf) > 0 && !c.Bad {
		f, path, text := DeleteOutcome(c.Byte()), c.Str(), c.Str()
		if c.Bad {
			break
		}
		if f < DeletedFile || f > DeletedNone || path == "" || len(path) > manifest.MaxPathBytes || len(text) > MaxTextBytes {
			return fmt.Errorf("%w: bad list of what was deleted", ErrProtocol)
		}
		each(f, path, text)
	}
	return c.Err("list of what was deleted")
}

// Unsettled is a directory that exists but did not get all of its attributes, and the
// reason.
type Unsettled struct{ Path, Text string }

// AppendTo appends the directory's path and the reason to the body of MsgUnsettled. It
// truncates the reason to fit into a message.
func (u *Unsettled) AppendTo(b []byte) []byte {
	for _, s := range []string{u.Path, u.Text[:min(len(u.Text), MaxTextBytes)]} {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// DecodeUnsettled calls each for the directories in the body of MsgUnsettled.
func DecodeUnsettled(body []byte, each func(Unsettled)) error {
	c := Cursor{Buf: body}
	for len(c.Buf) > 0 && !c.Bad {
		u := Unsettled{c.Str(), c.Str()}
		if c.Bad {
			break
		}
		if manifest.CheckPath(u.Path) != nil || len(u.Text) > MaxTextBytes {
			return fmt.Errorf("%w: bad list of directories that were not settled", ErrProtocol)
		}
		each(u)
	}
	return c.Err("list of directories that were not settled")
}

// DecodeUnwanted calls each for the ids in the body of MsgUnwanted. The body has runs of
// ids below limit. A run is encoded as its distance from the end of the previous run, and
// its length.
func DecodeUnwanted(body []byte, limit uint64, each func(id uint64) error) error {
	c := Cursor{Buf: body}
	next := uint64(0)
	for len(c.Buf) > 0 && !c.Bad {
		gap, n := c.Uvarint(), c.Uvarint()
		if n == 0 || gap > limit-next || n > limit-next-gap {
			return fmt.Errorf("%w: %d entries not wanted, %d beyond %d of %d", ErrProtocol, n, gap, next, limit)
		}
		next += gap
		for range n {
			if err := each(next); err != nil {
				return err
			}
			next++
		}
	}
	return c.Err("list of entries that are not wanted")
}

// Roots is the body of MsgRoot and MsgDone: an end's digests of everything that was
// copied.
type Roots struct {
	Content, Meta  [32]byte
	Entries, Bytes uint64
}

// Encode returns the body of MsgRoot and MsgDone.
func (r *Roots) Encode() []byte {
	b := make([]byte, 0, rootsBytes)
	b = append(b, r.Content[:]...)
	b = append(b, r.Meta[:]...)
	b = binary.LittleEndian.AppendUint64(b, r.Entries)
	return binary.LittleEndian.AppendUint64(b, r.Bytes)
}

const rootsBytes = 80

// DecodeRoots is Encode's inverse.
func DecodeRoots(b []byte) (r Roots, err error) {
	if len(b) != rootsBytes {
		return r, fmt.Errorf("%w: roots of %d bytes", ErrProtocol, len(b))
	}
	copy(r.Content[:], b)
	copy(r.Meta[:], b[32:])
	r.Entries, r.Bytes = binary.LittleEndian.Uint64(b[64:]), binary.LittleEndian.Uint64(b[72:])
	return r, nil
}

// AppendNamed appends to the body of MsgDone whether a tree that should appear as a whole
// was published.
func AppendNamed(body []byte, named bool) []byte {
	if named {
		return append(body, 1)
	}
	return append(body, 0)
}

// CutNamed is AppendNamed's inverse.
func CutNamed(b []byte) (body []byte, named bool, err error) {
	last := len(b) - 1
	if last < 0 || b[last] > 1 {
		return nil, false, fmt.Errorf("%w: an end of %d bytes does not say whether the tree has its name", ErrProtocol, len(b))
	}
	return b[:last], b[last] == 1, nil
}

// Abort is the body of MsgAbort: a class and a line for people.
type Abort struct {
	Class ErrorClass
	Text  string
}

// Encode returns the body of MsgAbort. It truncates the text to fit.
func (a *Abort) Encode() []byte {
	text := a.Text
	if len(text) > MaxTextBytes {
		text = text[:MaxTextBytes]
	}
	return append([]byte{byte(a.Class)}, text...)
}

// DecodeAbort is Encode's inverse.
func DecodeAbort(b []byte) (a Abort, err error) {
	if len(b) == 0 || len(b) > MaxTextBytes+1 {
		return a, fmt.Errorf("%w: abort of %d bytes", ErrProtocol, len(b))
	}
	return Abort{ErrorClass(b[0]), string(b[1:])}, nil
}

// ErrorClass groups errors by what a caller can do about them. It is sent in aborts, so
// that a failure has the same exit code at both ends.
type ErrorClass uint8

// The classes of errors.
const (
	ClassError       ErrorClass = 1
	ClassUsage       ErrorClass = 2
	ClassIntegrity   ErrorClass = 3
	ClassUnsupported ErrorClass = 4
	ClassStopped     ErrorClass = 5
)
