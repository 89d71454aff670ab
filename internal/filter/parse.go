package filter

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// maxMergeDepth bounds how deeply files of rules may nest.
const maxMergeDepth = 32

// Parser reads rules in the order of a command line. The zero value with an
// Open is ready to use.
type Parser struct {
	// Open opens a file of rules by the name that the user gave.
	Open func(name string) (io.ReadCloser, error)
	// Nul: rules in files end with a NUL, not with a newline (--from0).
	Nul bool

	rules []Rule
	bytes int
	depth int
}

// Rules are the rules read so far.
func (p *Parser) Rules() []Rule { return p.rules }

// container holds the properties that the rules of a file inherit from the
// option or rule that names the file.
type container struct {
	Rule
	// plain: no rule has a prefix, all are patterns. old: only "- ", "+ " and
	// "!" are recognized (as for --exclude).
	plain, old bool
}

// Exclude parses the value of --exclude, and Include that of --include: a
// pattern, optionally preceded by "- " or "+ ", or "!".
func (p *Parser) Exclude(pattern string) error { return p.line(pattern, container{old: true}) }

// Include: see Exclude.
func (p *Parser) Include(pattern string) error {
	return p.line(pattern, container{old: true, Rule: Rule{Include: true}})
}

// ExcludeFrom reads a file of patterns to exclude, and IncludeFrom one of patterns to
// include. Errors of opening and reading are those of Open and of the file.
func (p *Parser) ExcludeFrom(file string) error { return p.file(file, container{old: true}) }

// IncludeFrom: see ExcludeFrom.
func (p *Parser) IncludeFrom(file string) error {
	return p.file(file, container{old: true, Rule: Rule{Include: true}})
}

// Filter parses the value of --filter: a rule of any kind.
func (p *Parser) Filter(rule string) error { return p.line(rule, container{}) }

// file reads the rules of a file. Lines end with LF, CR or both. Empty lines and lines
// that begin with '#' or ';' are ignored.
func (p *Parser) file(name string, c container) error {
	if p.depth >= maxMergeDepth {
		return syntaxError("%q: files of rules include each other more than %d deep", name, maxMergeDepth)
	}
	p.depth++
	defer func() { p.depth-- }()
	f, err := p.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := newLines(f, p.Nul, MaxPatternBytes+maxPrefixBytes)
	for n := 1; ; n++ {
		line, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read rules from %q: %w", name, err)
		}
		if len(line) == 0 || line[0] == '#' || line[0] == ';' {
			continue
		}
		if err := p.line(string(line), c); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
}

// maxPrefixBytes bounds the text before the pattern in a line.
const maxPrefixBytes = 64

// line parses one rule.
func (p *Parser) line(text string, c container) error {
	switch {
	case text == "":
		return nil
	case c.plain:
		r := c.Rule
		r.Pattern = text
		return p.add(r)
	case c.old:
		return p.oldLine(text, c)
	}
	return p.newLine(text, c)
}

func (p *Parser) oldLine(text string, c container) error {
	if text == "!" {
		p.clear()
		return nil
	}
	r := c.Rule
	r.Pattern = text
	for prefix, include := range map[string]bool{"- ": false, "+ ": true} {
		if rest, found := strings.CutPrefix(text, prefix); found {
			r.Pattern, r.Include = rest, include
		}
	}
	return p.add(r)
}

func (p *Parser) clear() { p.rules, p.bytes = nil, 0 }

func (p *Parser) add(r Rule) error {
	if err := r.Check(); err != nil {
		return err
	}
	p.bytes += len(r.Pattern)
	if len(p.rules) >= MaxRules || p.bytes > MaxBytes {
		return syntaxError("more than %d rules, or more than %d bytes of them", MaxRules, MaxBytes)
	}
	p.rules = append(p.rules, r)
	return nil
}

// letterOf maps a rule's long name to its letter.
func letterOf(name string) (letter byte, ok bool) {
	letter, ok = map[string]byte{
		"exclude": '-', "include": '+', "merge": '.', "dir-merge": ':', "hide": 'H', "show": 'S', "protect": 'P', "risk": 'R', "clear": '!',
	}[name]
	return letter, ok
}

// kindOf splits a rule's name off its text: one letter, or a word that ends at
// the modifiers or the pattern. A comma before modifiers belongs to the name.
func kindOf(text string) (kind byte, rest string, ok bool) {
	end := strings.IndexAny(text, " _,")
	if end < 0 {
		end = len(text)
	}
	if kind, ok = letterOf(text[:end]); ok {
		return kind, strings.TrimPrefix(text[end:], ","), true
	}
	kind = text[0]
	return kind, strings.TrimPrefix(text[1:], ","), strings.IndexByte("-+.:HSPR!", kind) >= 0
}

// newLine parses a rule with its name, in the form of --filter.
func (p *Parser) newLine(text string, c container) error {
	kind, rest, ok := kindOf(text)
	if !ok {
		return syntaxError("%q does not begin with the name of a rule", text)
	}
	if kind == '!' {
		if rest != "" {
			return syntaxError("%q: nothing can follow a rule that clears", text)
		}
		p.clear()
		return nil
	}
	if kind == ':' {
		return syntaxError("%q: rules of each directory's own (dir-merge) are not supported", text)
	}
	end := strings.IndexAny(rest, " _")
	if end < 0 {
		end = len(rest)
	}
	m := modifiers{container: c, merges: kind == '.'}
	m.Include = kind == '+' || kind == 'S' || kind == 'R'
	m.Sender, m.Receiver = kind == 'H' || kind == 'S', kind == 'P' || kind == 'R'
	m.sided = m.Sender || m.Receiver
	if err := m.take(text, rest[:end]); err != nil {
		return err
	}
	if c.Sender || c.Receiver {
		if m.Sender || m.Receiver {
			return syntaxError("%q: the file of the rule has a side already", text)
		}
		m.Sender, m.Receiver = c.Sender, c.Receiver
	}
	if len(rest)-end < 2 { // the single space or underscore does not belong to the pattern
		return syntaxError("%q: the pattern is missing", text)
	}
	m.Pattern = rest[end+1:]
	if !m.merges {
		return p.add(m.Rule)
	}
	return p.merge(&m)
}

// merge reads the file that a rule's pattern names.
func (p *Parser) merge(m *modifiers) error {
	file := m.Pattern
	if m.exceptItself {
		if err := p.add(Rule{Pattern: path.Base(file)}); err != nil {
			return err
		}
	}
	m.Pattern = ""
	return p.file(file, m.container)
}

// modifiers hold a rule while the letters after its name are parsed.
type modifiers struct {
	container
	merges       bool // it names a file
	sided        bool // its name determines the side
	exceptItself bool // the file excludes itself
}

func (m *modifiers) take(text, letters string) error {
	m.old = false
	for i := range len(letters) {
		letter := letters[i]
		refused := false
		switch letter {
		case '/':
			m.Absolute = true
		case '!':
			m.Negate, refused = true, m.merges
		case 'p':
			m.Perishable = true
		case 's':
			m.Sender, refused = true, m.sided
		case 'r':
			m.Receiver, refused = true, m.sided
		case '-', '+':
			refused = !m.merges || m.plain
			m.plain, m.Include = true, letter == '+'
		case 'e':
			m.exceptItself, refused = true, !m.merges
		case 'n': // inheritance by subdirectories: there is nothing to inherit
			refused = !m.merges
		case 'C', 'w', 'x':
			return syntaxError("%q: the modifier %c is not supported", text, letter)
		default:
			refused = true
		}
		if refused {
			return syntaxError("%q: %q is not a modifier of such a rule", text, letter)
		}
	}
	return nil
}
