package manifest

import (
	"bytes"
	"fmt"
)

// parseHeader reads the first line. It checks the version before anything that
// may depend on it. identities is true if files may have identities.
func parseHeader(line []byte) (h Header, identities bool, err error) {
	word, rest, _ := bytes.Cut(line, []byte(" "))
	if string(word) != magic {
		return h, false, fmt.Errorf("%w: begins with %.40q, not %q", ErrFormat, line, magic)
	}
	word, rest, _ = bytes.Cut(rest, []byte(" "))
	if identities = string(word) == identitiesVersion; !identities && string(word) != version {
		return h, false, fmt.Errorf("%w: %.40q, this program knows %s and %s", ErrVersion, word, version, identitiesVersion)
	}
	word, rest, _ = bytes.Cut(rest, []byte(" "))
	if h.Algorithm, err = ParseAlgorithm(string(word)); err != nil {
		return h, false, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	pieceBytes, ok := parseDecimal(rest)
	if !ok {
		return h, false, fmt.Errorf("%w: piece size %.40q", ErrFormat, rest)
	}
	h.PieceBytes = pieceBytes
	return h, identities, h.Check()
}

// parseSummary reads the last line after its first word.
func parseSummary(rest []byte) (s Summary, err error) {
	content, rest, _ := bytes.Cut(rest, []byte(" "))
	meta, rest, _ := bytes.Cut(rest, []byte(" "))
	entries, rest, _ := bytes.Cut(rest, []byte(" "))
	entries, named := bytes.CutPrefix(entries, []byte("entries="))
	size, namedToo := bytes.CutPrefix(rest, []byte("bytes="))
	ok := named && namedToo && parseHex(s.Content[:], content) && parseHex(s.Meta[:], meta)
	if ok {
		s.Entries, ok = parseDecimal(entries)
	}
	if ok {
		s.Bytes, ok = parseDecimal(size)
	}
	if !ok {
		return Summary{}, fmt.Errorf("%w: malformed last line", ErrFormat)
	}
	return s, nil
}

// parseEntry reads an entry's line. several is true if lines with the entry's
// pieces follow; otherwise the entry is complete.
func (r *Reader) parseEntry(line []byte) (e *Entry, several bool, err error) {
	kind, rest, _ := bytes.Cut(line, []byte(" "))
	mode, rest, _ := bytes.Cut(rest, []byte(" "))
	mtime, rest, found := bytes.Cut(rest, []byte(" "))
	if len(kind) != 1 || !found {
		return nil, false, fmt.Errorf("%w: not an entry: %.80q", ErrFormat, line)
	}
	e = &Entry{Type: EntryType(kind[0])}
	var ok bool
	if e.Mode, ok = parseMode(mode); !ok {
		return nil, false, fmt.Errorf("%w: mode %.40q", ErrFormat, mode)
	}
	if e.MtimeNs, ok = parseTime(mtime); !ok {
		return nil, false, fmt.Errorf("%w: time %.40q", ErrFormat, mtime)
	}
	switch e.Type {
	case File:
		if rest, several, err = r.parseFile(e, rest); err != nil {
			return nil, false, err
		}
	case Symlink:
		path, target, _ := bytes.Cut(rest, []byte("\t"))
		if e.Target, err = r.unescape(target); err != nil {
			return nil, false, err
		}
		rest = path
	}
	if e.Path, err = r.unescape(rest); err != nil {
		return nil, false, err
	}
	if e.Type == File && !several {
		err = checkEmpty(r.header.Algorithm, e)
	}
	return e, several, err
}

// parseFile reads the fields that only files have, and returns the rest of the line.
func (r *Reader) parseFile(e *Entry, s []byte) (rest []byte, several bool, err error) {
	size, rest, _ := bytes.Cut(s, []byte(" "))
	digest, rest, _ := bytes.Cut(rest, []byte(" "))
	var ok bool
	if e.Size, ok = parseDecimal(size); !ok {
		return nil, false, fmt.Errorf("%w: size %.40q", ErrFormat, size)
	}
	several = PieceCount(e.Size, r.header.PieceBytes) > 1
	if !several {
		e.Root, err = r.header.Algorithm.ParseHex(digest)
		return rest, false, err
	}
	if string(digest) != "*" {
		return nil, false, fmt.Errorf("%w: %.80q for the digests of several pieces", ErrFormat, digest)
	}
	return rest, true, nil
}

// parseRun reads the line of one or more equal pieces.
func (r *Reader) parseRun(line []byte) (d Digest, count uint64, err error) {
	text, ok := bytes.CutPrefix(line, []byte(" "))
	if !ok {
		return d, 0, fmt.Errorf("%w: %.80q among the pieces of %q", ErrFormat, line, r.entry.Path)
	}
	text, times, run := bytes.Cut(text, []byte(" "))
	if d, err = r.header.Algorithm.ParseHex(text); err != nil {
		return d, 0, err
	}
	if r.runs && d == r.previous {
		return d, 0, fmt.Errorf("%w: equal digests of %q in two lines", ErrFormat, r.entry.Path)
	}
	if !run {
		return d, 1, nil
	}
	times, ok = bytes.CutPrefix(times, []byte("x"))
	n, isNumber := parseDecimal(times)
	if !ok || !isNumber || n < 2 {
		return d, 0, fmt.Errorf("%w: run %.40q", ErrFormat, times)
	}
	return d, uint64(n), nil
}

// unescape reads a name and refuses every spelling but the canonical one.
func (r *Reader) unescape(s []byte) (string, error) {
	plain, ok := appendUnescaped(r.plain[:0], s)
	r.plain = plain
	name := string(plain)
	r.again = appendEscaped(r.again[:0], name)
	if !ok || !bytes.Equal(r.again, s) {
		return "", fmt.Errorf("%w: name %.80q is not escaped as it must be", ErrFormat, s)
	}
	return name, nil
}
