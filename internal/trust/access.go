package trust

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	// maxAccessBytes bounds an access file: room for several thousand keys.
	maxAccessBytes = 1 << 20
	// MaxSessionsOfKey bounds max-sessions in an access file.
	MaxSessionsOfKey = 1 << 16
)

// ErrAccess is the error for an invalid line of an access file.
var ErrAccess = errors.New("access file")

// Permit is an access file's entry for a key.
type Permit struct {
	Key
	Root     string // absolute and clean; the holder of the key sees it as "/"
	ReadOnly bool
	// RequireEncrypt admits only sessions with encrypted data.
	RequireEncrypt bool
	// AllAttributes lets a client that reads files read their extended
	// attributes of all namespaces, not only of user.
	AllAttributes bool
	MaxSessions   int // concurrently; 0: no limit for this key
	// BytesPerSecond limits the total data rate of all of the key's sessions,
	// in both directions; 0: no limit.
	BytesPerSecond int64
}

// Access is the parsed content of an access file. It is immutable.
type Access struct {
	permits []Permit // in the order of the file
	byID    map[string]int
}

// Find returns the permit of a key.
func (a *Access) Find(id string) (Permit, bool) {
	i, ok := a.byID[id]
	if !ok {
		return Permit{}, false
	}
	return a.permits[i], true
}

// Permits lists the permits, in the order of the file. The caller must not change the
// list.
func (a *Access) Permits() []Permit { return a.permits }

// ReadAccess reads an access file. It has a line for each key, of the form
//
//	ID SECRET ro|rw ROOT [max-sessions=N] [rate=SIZE] [require-encrypt] [all-attributes]
//
// The secret is in base64. ROOT is absolute. If it contains blanks or
// unprintable characters, it is in double quotes as in Go. rate is in bytes per
// second, with an optional K, M, G or T for powers of 1024. Empty lines are
// ignored, and so is everything after a word that begins with #. An error names
// the file and the line, but repeats nothing of the line except a well-formed
// id. If others may read or write the file, the error is a PermissiveError.
func ReadAccess(path string) (*Access, error) { return readAccess(path, trusted) }

// InspectAccess is ReadAccess for displaying a file, not for admitting clients:
// root may inspect a file of any owner.
func InspectAccess(path string) (*Access, error) { return readAccess(path, anybody) }

func readAccess(path string, of owners) (*Access, error) {
	data, err := readPrivate(path, maxAccessBytes, of)
	if err != nil {
		return nil, err
	}
	return parseAccess(path, data)
}

func parseAccess(name string, data []byte) (*Access, error) {
	a := &Access{byID: make(map[string]int)}
	lineOf := make(map[string]int)
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		p, ok, err := parsePermit(strings.TrimSuffix(line, "\n"))
		if err == nil && ok && lineOf[p.ID] > 0 {
			err = fmt.Errorf("key %s is there twice: also in line %d", p.ID, lineOf[p.ID])
		}
		if err != nil {
			return nil, fmt.Errorf("%w %s:%d: %w", ErrAccess, name, n, err)
		}
		if ok {
			a.byID[p.ID], lineOf[p.ID] = len(a.permits), n
			a.permits = append(a.permits, p)
		}
	}
	return a, nil
}

// parsePermit parses a line; ok is true if the line has a permit.
func parsePermit(line string) (p Permit, ok bool, err error) {
	var id, secret, rights string
	id, line = word(line)
	if id == "" || id[0] == '#' {
		return p, false, nil
	}
	if err := CheckID(id); err != nil {
		return p, false, err
	}
	p.ID = id
	secret, line = word(line)
	if p.Secret, err = decodeSecret(secret); err != nil {
		return Permit{}, false, err
	}
	rights, line = word(line)
	if rights != "ro" && rights != "rw" {
		return Permit{}, false, errors.New("the third word is neither ro nor rw")
	}
	p.ReadOnly = rights == "ro"
	if p.Root, line, err = root(line); err != nil {
		return Permit{}, false, err
	}
	if err := p.limits(line); err != nil {
		return Permit{}, false, err
	}
	return p, true, nil
}

// word splits the first word off a line.
func word(line string) (first, rest string) {
	line = strings.TrimLeft(line, blanks)
	if i := strings.IndexAny(line, blanks); i >= 0 {
		return line[:i], line[i:]
	}
	return line, ""
}

const blanks = " \t\r"

// root splits ROOT off a line.
func root(line string) (dir, rest string, err error) {
	line = strings.TrimLeft(line, blanks)
	if strings.HasPrefix(line, `"`) {
		quoted, err := strconv.QuotedPrefix(line)
		if err == nil {
			dir, err = strconv.Unquote(quoted)
		}
		if err != nil {
			return "", "", errors.New("the quoted root is not a string as in Go")
		}
		if rest = line[len(quoted):]; rest != "" && !strings.ContainsAny(rest[:1], blanks) {
			return "", "", errors.New("a blank must follow the quoted root")
		}
	} else {
		dir, rest = word(line)
	}
	if !filepath.IsAbs(dir) || strings.IndexByte(dir, 0) >= 0 {
		return "", "", errors.New("the root is not an absolute path")
	}
	return filepath.Clean(dir), rest, nil
}

// limits parses the words that may follow ROOT.
func (p *Permit) limits(line string) error {
	seen := make(map[string]bool)
	for {
		var option string
		option, line = word(line)
		if option == "" || option[0] == '#' {
			return nil
		}
		name, value, valued := strings.Cut(option, "=")
		if seen[name] {
			return errors.New("an option is there twice")
		}
		seen[name] = true
		switch name {
		case "max-sessions":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > MaxSessionsOfKey {
				return fmt.Errorf("max-sessions is not a number from 1 to %d", MaxSessionsOfKey)
			}
			p.MaxSessions = n
		case "rate":
			n, err := parseRate(value)
			if err != nil {
				return err
			}
			p.BytesPerSecond = n
		case "require-encrypt":
			if valued {
				return errors.New("require-encrypt takes no value")
			}
			p.RequireEncrypt = true
		case "all-attributes":
			if valued {
				return errors.New("all-attributes takes no value")
			}
			p.AllAttributes = true
		default:
			return errors.New("only max-sessions=N, rate=SIZE, require-encrypt and all-attributes can follow the root")
		}
	}
}

// parseRate parses bytes per second, such as 500M or 1GiB.
func parseRate(text string) (int64, error) {
	bad := errors.New("rate is not a size of at least 1K, like 500M or 1GiB")
	digits := strings.TrimRight(text, "BKMGTi")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}[text[len(digits):]]
	n, err := strconv.ParseUint(digits, 10, 63)
	if !ok || err != nil || n > math.MaxInt64>>shift || n<<shift < 1<<10 {
		return 0, bad
	}
	return int64(n << shift), nil
}

// line returns the permit in the form that ReadAccess reads, with its secret.
func (p *Permit) line() string {
	dir := p.Root
	if strings.ContainsAny(dir, blanks+"\"#") || strconv.Quote(dir) != `"`+dir+`"` {
		dir = strconv.Quote(dir)
	}
	rights := "rw"
	if p.ReadOnly {
		rights = "ro"
	}
	text := strings.Join([]string{p.ID, encodeSecret(p.Secret), rights, dir}, " ")
	if p.MaxSessions > 0 {
		text += " max-sessions=" + strconv.Itoa(p.MaxSessions)
	}
	if p.BytesPerSecond > 0 {
		text += " rate=" + strconv.FormatInt(p.BytesPerSecond, 10)
	}
	if p.RequireEncrypt {
		text += " require-encrypt"
	}
	if p.AllAttributes {
		text += " all-attributes"
	}
	return text
}
