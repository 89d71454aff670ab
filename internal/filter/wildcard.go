package filter

import (
	"math/bits"
	"strings"
)

// token is one element of a wildcard pattern.
type token struct {
	kind  tokenKind
	char  byte   // of a literal
	class uint16 // index among the classes
}

type tokenKind uint8

const (
	literal  tokenKind = iota
	anyChar            // ?
	oneOf              // [...]
	star               // *: any run without a slash
	starStar           // **: any run
)

// class is a set of bytes.
type class [4]uint64

func (c *class) add(b byte)      { c[b>>6] |= 1 << (b & 63) }
func (c *class) has(b byte) bool { return c[b>>6]&(1<<(b&63)) != 0 }

func (c *class) addRange(from, to byte) {
	for b := int(from); b <= int(to); b++ {
		c.add(byte(b))
	}
}

// wildcard is a compiled pattern with wildcards.
type wildcard struct {
	tokens  []token
	classes []class
	// head and tail are the literals at either end. Most names that do not
	// match already differ there.
	head, tail string
	// never: the pattern matches nothing, like "[a".
	never bool
}

func compileWildcard(pattern string) wildcard {
	w := wildcard{}
	for i := 0; i < len(pattern); {
		t := token{kind: literal, char: pattern[i]}
		switch pattern[i] {
		case '?':
			t.kind = anyChar
		case '*':
			t.kind = star
			for i+1 < len(pattern) && pattern[i+1] == '*' {
				t.kind = starStar
				i++
			}
		case '\\':
			if i++; i == len(pattern) {
				w.never = true
				return w
			}
			t.char = pattern[i]
		case '[':
			c, n := parseClass(pattern[i:])
			if n == 0 {
				w.never = true
				return w
			}
			t.kind, t.class = oneOf, uint16(len(w.classes))
			w.classes = append(w.classes, c)
			i += n - 1
		}
		w.tokens = append(w.tokens, t)
		i++
	}
	w.head, w.tail = w.ends()
	return w
}

func (w *wildcard) ends() (head, tail string) {
	from, to := 0, len(w.tokens)
	for from < to && w.tokens[from].kind == literal {
		from++
	}
	for to > from && w.tokens[to-1].kind == literal {
		to--
	}
	return literals(w.tokens[:from]), literals(w.tokens[to:])
}

func literals(tokens []token) string {
	b := make([]byte, len(tokens))
	for i := range tokens {
		b[i] = tokens[i].char
	}
	return string(b)
}

// parseClass parses a class from its opening bracket, and returns its length in
// bytes, or 0 if it is not terminated. As in rsync, a ']' that comes first
// stands for itself, '!' and '^' invert a class, and no class matches a slash.
func parseClass(p string) (c class, n int) {
	i := 1
	turned := i < len(p) && (p[i] == '!' || p[i] == '^')
	if turned {
		i++
	}
	before := byte(0) // the possible first byte of a range, or 0
	for first := true; first || i < len(p) && p[i] != ']'; first = false {
		if i >= len(p) {
			return c, 0
		}
		switch {
		case p[i] == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return c, 0
			}
			name := p[i+2 : i+2+end]
			if !strings.HasSuffix(name, ":") { // not the name of a class
				c.add('[')
				before = '['
				break
			}
			if !c.addNamed(strings.TrimSuffix(name, ":")) {
				return c, 0
			}
			before = 0
			i += 2 + end
		case p[i] == '-' && before != 0 && i+1 < len(p) && p[i+1] != ']':
			if i++; p[i] == '\\' {
				i++
			}
			if i >= len(p) {
				return c, 0
			}
			c.addRange(before, p[i])
			before = 0
		default:
			if p[i] == '\\' {
				i++
			}
			if i >= len(p) {
				return c, 0
			}
			c.add(p[i])
			before = p[i]
		}
		i++
	}
	if i >= len(p) {
		return c, 0
	}
	if turned {
		for k := range c {
			c[k] = ^c[k]
		}
	}
	c['/'>>6] &^= 1 << ('/' & 63)
	return c, i + 1
}

// addNamed adds the bytes of [:name:]: only ASCII, as in the C locale.
func (c *class) addNamed(name string) bool {
	switch name {
	case "upper":
		c.addRange('A', 'Z')
	case "lower":
		c.addRange('a', 'z')
	case "digit":
		c.addRange('0', '9')
	case "alpha":
		c.addNamed("upper")
		c.addNamed("lower")
	case "alnum":
		c.addNamed("alpha")
		c.addNamed("digit")
	case "xdigit":
		c.addNamed("digit")
		c.addRange('A', 'F')
		c.addRange('a', 'f')
	case "blank":
		c.add(' ')
		c.add('\t')
	case "space":
		c.add(' ')
		c.addRange('\t', '\r')
	case "cntrl":
		c.addRange(0, 0x1f)
		c.add(0x7f)
	case "graph":
		c.addRange('!', '~')
	case "print":
		c.addRange(' ', '~')
	case "punct":
		c.addRange('!', '/')
		c.addRange(':', '@')
		c.addRange('[', '`')
		c.addRange('{', '~')
	default:
		return false
	}
	return true
}

// text is the text to match with a pattern: name, optionally with a slash
// before or after it that the entry's path lacks.
type text struct {
	name           []byte
	before, behind bool
}

// stateWords is the number of words with a bit for each token, and one more.
const stateWords = MaxPatternBytes/64 + 1

// match matches the pattern against a text and, with later, also against the
// part after each of its slashes. It follows all possible matches in parallel,
// so that no pattern takes longer than its length times the text's.
func (w *wildcard) match(t text, later bool) bool {
	head, tail := min(len(w.head), len(t.name)), min(len(w.tail), len(t.name))
	switch {
	case w.never:
		return false
	case !t.behind && string(t.name[len(t.name)-tail:]) != w.tail[len(w.tail)-tail:]:
		return false
	case !t.before && !later && string(t.name[:head]) != w.head[:head]:
		return false
	}
	var a, b [stateWords]uint64
	words := len(w.tokens)/64 + 1
	now, next := a[:words], b[:words]
	w.enter(now, 0)
	if t.before {
		w.step(now, next, '/')
		now, next = next, now
	}
	for _, char := range t.name {
		alive := w.step(now, next, char)
		now, next = next, now
		if later && char == '/' {
			w.enter(now, 0)
		} else if !alive && !later {
			return false
		}
	}
	if t.behind {
		w.step(now, next, '/')
		now = next
	}
	last := len(w.tokens)
	return now[last>>6]&(1<<(last&63)) != 0
}

// enter makes a token the next to match; a star can also match the empty string.
func (w *wildcard) enter(states []uint64, i int) {
	states[i>>6] |= 1 << (i & 63)
	for ; i < len(w.tokens) && w.tokens[i].kind >= star; i++ {
		states[(i+1)>>6] |= 1 << ((i + 1) & 63)
	}
}

// step sets next to the states that char leads to from those in now, and
// reports whether there are any.
func (w *wildcard) step(now, next []uint64, char byte) bool {
	clear(next)
	alive := false
	for word, set := range now {
		for ; set != 0; set &= set - 1 {
			i := word<<6 + bits.TrailingZeros64(set)
			if i == len(w.tokens) {
				continue
			}
			t := &w.tokens[i]
			to := i + 1
			switch t.kind {
			case literal:
				if char != t.char {
					continue
				}
			case oneOf:
				if !w.classes[t.class].has(char) {
					continue
				}
			case starStar:
				to = i
			default:
				if char == '/' {
					continue
				}
				if t.kind == star {
					to = i
				}
			}
			w.enter(next, to)
			alive = true
		}
	}
	return alive
}
