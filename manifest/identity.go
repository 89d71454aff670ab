package manifest

import (
	"bytes"
	"fmt"
	"strconv"
)

// Identity distinguishes a file in its present state from other files of its file system,
// and from its later states: every change of a file changes its ctime (inode(7)), and
// programs cannot set the ctime. It is meaningless on another file system.
type Identity struct {
	Ino uint64
	// CtimeNs is the time of the inode's last change, in nanoseconds since 1970.
	CtimeNs int64
}

// WithIdentities allows identities in the manifest. Call it before the first entry.
func (w *Writer) WithIdentities() { w.identities = true }

func (w *Writer) version() string {
	if w.identities {
		return identitiesVersion
	}
	return version
}

// Identify gives the next entry, which must be a file, an identity. It does nothing without
// WithIdentities.
func (w *Writer) Identify(id Identity) {
	if w.identities {
		w.identity = &id
	}
}

// appendIdentity appends the line of an entry's identity, if it has one.
func (w *Writer) appendIdentity(e *Entry) {
	if w.identity != nil && e.Type == File {
		w.line = append(w.line, "i "...)
		w.line = append(strconv.AppendUint(w.line, w.identity.Ino, 10), ' ')
		w.line = append(appendTime(w.line, w.identity.CtimeNs), '\n')
	}
	w.identity = nil
}

// HasIdentities reports whether the manifest may have identities.
func (r *Reader) HasIdentities() bool { return r.identities }

// Identity returns the identity of the last entry. ok is false if it has none.
func (r *Reader) Identity() (id Identity, ok bool) {
	if r.identity == nil {
		return id, false
	}
	return *r.identity, true
}

// takeIdentity reads the identity of the next entry if line is one, and returns
// the entry's line.
func (r *Reader) takeIdentity(line []byte) ([]byte, error) {
	r.identity = nil
	rest, ok := bytes.CutPrefix(line, []byte("i "))
	if !ok || !r.identities {
		return line, nil
	}
	ino, ctime, _ := bytes.Cut(rest, []byte(" "))
	n, err := strconv.ParseUint(string(ino), 10, 64)
	id := Identity{Ino: n}
	id.CtimeNs, ok = parseTime(ctime)
	if err != nil || !ok || strconv.FormatUint(n, 10) != string(ino) {
		return nil, fmt.Errorf("%w: identity %.80q", ErrFormat, rest)
	}
	r.identity = &id
	return r.readLine()
}
