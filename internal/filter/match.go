package filter

import (
	"bytes"
	"path/filepath"
	"strings"
)

// compiled is a compiled rule.
type compiled struct {
	include, negate, perishable bool
	onSource, onSink            bool
	dirOnly                     bool // the pattern ends with a slash
	absolute                    bool
	anchored                    bool // the pattern begins with a slash
	slashes                     int  // slashes within the pattern, including the first
	// wild is nil for a pattern without wildcards. deep: the pattern has "**";
	// deepStart and deepEnd: it begins with "**", or ends with "***".
	wild                     *wildcard
	deep, deepStart, deepEnd bool
	pattern                  string // without leading and trailing slashes
}

// Rules are a compiled list of rules. They do not change. Goroutines may use
// them concurrently, each with its own Matcher.
type Rules struct {
	list []compiled
	// wantsAbsolute: a rule matches absolute paths.
	wantsAbsolute bool
}

// Compile checks and compiles rules. It uses at most about 20 times the memory
// of the patterns. Errors wrap ErrSyntax.
func Compile(rules []Rule) (*Rules, error) {
	out := &Rules{list: make([]compiled, 0, len(rules))}
	patternBytes := 0
	for i := range rules {
		r := &rules[i]
		if err := r.Check(); err != nil {
			return nil, err
		}
		patternBytes += len(r.Pattern)
		c := compileRule(r)
		out.list = append(out.list, c)
		out.wantsAbsolute = out.wantsAbsolute || c.absolute
	}
	if len(rules) > MaxRules || patternBytes > MaxBytes {
		return nil, syntaxError("%d rules of %d bytes, at most %d of %d", len(rules), patternBytes, MaxRules, MaxBytes)
	}
	return out, nil
}

func compileRule(r *Rule) compiled {
	c := compiled{
		include: r.Include, negate: r.Negate, perishable: r.Perishable, absolute: r.Absolute,
		onSource: r.Sender || !r.Receiver, onSink: r.Receiver || !r.Sender, pattern: r.Pattern,
	}
	if p, found := strings.CutSuffix(c.pattern, "/"); found && p != "" {
		c.pattern, c.dirOnly = p, true
	}
	c.slashes = strings.Count(c.pattern, "/")
	isWild := strings.ContainsAny(c.pattern, "*?[")
	if isWild {
		c.deep = strings.Contains(c.pattern, "**")
		c.deepStart = strings.HasPrefix(c.pattern, "**")
		c.deepEnd = strings.HasSuffix(c.pattern, "***")
	}
	c.pattern, c.anchored = strings.CutPrefix(c.pattern, "/")
	if isWild {
		w := compileWildcard(c.pattern)
		c.wild = &w
	}
	return c
}

// subject is an entry to be matched against rules.
type subject struct {
	name  []byte // its path in the transfer
	where []byte // its path in the file system, without the leading slash
	// rooted: the transfer begins at the file system's root, so that name and
	// where are equal.
	rooted bool
	isDir  bool
}

// matches reports whether the rule applies to the entry.
func (c *compiled) matches(s *subject) bool {
	if c.dirOnly && !s.isDir {
		return c.negate
	}
	return c.matchesPattern(s) != c.negate
}

func (c *compiled) matchesPattern(s *subject) bool {
	t := text{name: s.name, behind: s.isDir && c.deepEnd}
	switch {
	case c.slashes == 0 && !c.deep:
		t.name = lastElements(t.name, 1)
	case c.absolute && !s.rooted:
		t.name = s.where
	default:
		t.before = c.deepStart
	}
	if !c.anchored && c.slashes > 0 && !c.deep {
		if t.name = lastElements(t.name, c.slashes+1); t.name == nil {
			return false
		}
	}
	if c.wild == nil {
		return string(t.name) == c.pattern
	}
	return c.wild.match(t, !c.anchored && c.deep && !c.deepStart)
}

// lastElements returns the last n elements of a path, or nil if it has fewer.
func lastElements(path []byte, n int) []byte {
	for at := len(path); ; {
		if at = bytes.LastIndexByte(path[:at], '/'); at < 0 {
			if n == 1 {
				return path
			}
			return nil
		}
		if n--; n == 0 {
			return path[at+1:]
		}
	}
}

// Place is the location of a copy's entries, for patterns that are anchored at a root.
type Place struct {
	// Name is rsync's name for the entry "." of the copy: the name of the copied
	// directory, or "" if its contents or several sources are copied.
	Name string
	// Dir is the absolute path of the entry ".".
	Dir string
}

// PlaceOf returns the Place of a copy of one source. path is the source's absolute
// path, and name is its name at the destination: "." for a directory whose contents are
// copied.
func PlaceOf(path, name string, isDir bool) Place {
	switch {
	case !isDir:
		return Place{Dir: filepath.Dir(path)} // the source is an entry of that directory
	case name == ".":
		return Place{Dir: path}
	}
	return Place{Dir: path, Name: name}
}

// Absolute makes a path of this process absolute, for PlaceOf. If that is not possible,
// because the working directory has been removed, it returns the path unchanged.
func Absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// Matcher applies rules to the entries of one copy. It is not safe for concurrent use.
type Matcher struct {
	rules  *Rules
	prefix string // precedes the entry's path in the transfer
	dir    string // precedes prefix in the file system
	name   []byte
	where  []byte
}

// Matcher returns a Matcher for a copy at the given place.
func (r *Rules) Matcher(at Place) *Matcher {
	m := &Matcher{rules: r, prefix: at.Name}
	m.Move(at.Dir)
	return m
}

// Move changes the absolute path of the entry ".", for sources from several directories.
func (m *Matcher) Move(dir string) { m.dir = strings.Trim(dir, "/") }

// Hides reports whether the source excludes the entry with the given path, and
// with it the contents of a directory.
func (m *Matcher) Hides(path string, isDir bool) bool {
	s, ok := m.subject(path, isDir)
	if !ok {
		return false
	}
	for i := range m.rules.list {
		if c := &m.rules.list[i]; c.onSource && c.matches(&s) {
			return !c.include
		}
	}
	return false
}

// Protects reports whether the sink must not delete the entry with the given
// path. doomed means that the entry's directory is being deleted, in which case
// perishable rules do not apply.
func (m *Matcher) Protects(path string, isDir, doomed bool) bool {
	s, ok := m.subject(path, isDir)
	if !ok {
		return false
	}
	for i := range m.rules.list {
		if c := &m.rules.list[i]; c.onSink && !(doomed && c.perishable) && c.matches(&s) {
			return !c.include
		}
	}
	return false
}

// subject prepares an entry for matching, in the Matcher's buffers. It returns
// false for the top of a copy that has no name.
func (m *Matcher) subject(path string, isDir bool) (subject, bool) {
	if path == "." && m.prefix == "" {
		return subject{}, false
	}
	m.name = appendPath(m.name[:0], m.prefix, path)
	s := subject{name: m.name, isDir: isDir, rooted: true}
	if m.rules.wantsAbsolute && m.dir != "" {
		m.where = appendPath(m.where[:0], m.dir, path)
		s.where, s.rooted = m.where, false
	}
	return s, true
}

func appendPath(b []byte, dir, path string) []byte {
	b = append(b, dir...)
	if path == "." {
		return b
	}
	if dir != "" {
		b = append(b, '/')
	}
	return append(b, path...)
}
