package cmdline

import (
	"fmt"
	"regexp"
	"strings"
)

// roffColumns is the length of source lines that mandoc(1) accepts without a warning.
const roffColumns = 78

// roff is a manual page in the language of man(7) that is being written.
type roff struct {
	b strings.Builder
	// places finds the words of a usage that stand for something else. options finds
	// options in escaped text, with the text that must stand before them.
	places, options *regexp.Regexp
}

// newRoff begins a page.
func newRoff() *roff {
	return &roff{
		places:  regexp.MustCompile(`[A-Z]+`),
		options: regexp.MustCompile(`(^|[ (])(\\-){1,2}[A-Za-z0-9](?:[A-Za-z0-9]|\\-)*`),
	}
}

// macro writes a request whose arguments are quoted.
func (r *roff) macro(name string, args ...string) {
	r.b.WriteString("." + name)
	for _, a := range args {
		fmt.Fprintf(&r.b, ` "%s"`, escape(a))
	}
	r.b.WriteByte('\n')
}

// raw writes escaped text, on lines of its own.
func (r *roff) raw(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		// At the beginning of a line these would make it a request.
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		r.b.WriteString(line + "\n")
	}
}

// prose writes running text, in which options are bold.
func (r *roff) prose(text string) {
	escaped := r.options.ReplaceAllStringFunc(escape(strings.Join(strings.Fields(text), " ")), func(found string) string {
		start := strings.Index(found, `\-`)
		return found[:start] + bold(found[start:])
	})
	r.raw(wrap(escaped, 0, roffColumns))
}

func bold(escaped string) string   { return `\fB` + escaped + `\fR` }
func italic(escaped string) string { return `\fI` + escaped + `\fR` }

// escape makes roff take text literally: man(7) and groff_char(7). In an option, a name
// or a command line a hyphen becomes a minus, which a terminal shows as one and from
// which it can be copied. Within a word of prose it stays a hyphen.
func escape(text string) string {
	var b strings.Builder
	for _, word := range strings.SplitAfter(text, " ") {
		core := strings.Trim(word, "([\"'.,;:)] ")
		literal := strings.ContainsAny(core, "/=_.$") || strings.HasPrefix(core, "-")
		for _, c := range word {
			b.WriteString(escapeRune(c, literal))
		}
	}
	return b.String()
}

func escapeRune(c rune, literal bool) string {
	switch c {
	case '\\':
		return `\e`
	case '-':
		if literal {
			return `\-`
		}
		return "-"
	case '\'':
		return `\(aq`
	case '"':
		return `\(dq`
	case '`':
		return `\(ga`
	case '^':
		return `\(ha`
	case '~':
		return `\(ti`
	case '\t':
		return "    "
	}
	if c < ' ' || c == 0x7f || c == '\uFFFD' {
		return "?"
	}
	if c > '~' {
		return fmt.Sprintf(`\[u%04X]`, c)
	}
	return string(c)
}

// literal escapes text that is typed or printed literally.
func literal(text string) string {
	var b strings.Builder
	for _, c := range text {
		b.WriteString(escapeRune(c, true))
	}
	return b.String()
}
