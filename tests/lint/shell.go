package lint

import (
	"regexp"
	"strings"
)

// script is what a text in the language of bash says of commands.
type script struct {
	text      string   // without comments and here documents, a line each
	commands  []string // words in a command's place, as they stand there
	words     []string // the others, some of which are commands to another one
	functions map[string]bool
	quoted    []string // texts in single quotes, which another shell may run
}

// leading are words after which comes a command, perhaps with options between.
var leading = map[string]bool{
	"if": true, "then": true, "elif": true, "else": true, "while": true, "until": true, "do": true, "time": true, "!": true, "{": true,
	"exec": true, "command": true, "env": true, "timeout": true, "xargs": true, "sudo": true, "stdbuf": true, "nice": true,
}

var (
	functionHead = regexp.MustCompile(`(?m)^[ \t]*([a-z_][a-zA-Z0-9_]*)\(\) *\{`)
	comment      = regexp.MustCompile(`(?m)^[ \t]*#.*$`)
	assignment   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=`)
	hereDocument = regexp.MustCompile(`<<-?['"]?([A-Z]+)['"]?`)
)

// readScript finds the commands of a script. It knows of bash what this module's
// scripts use: quotes, substitutions, here documents, arrays, case, arithmetic.
func readScript(text string) script {
	s := script{functions: map[string]bool{}}
	for _, m := range functionHead.FindAllStringSubmatch(text, -1) {
		s.functions[m[1]] = true
	}
	text = dropHereDocuments(text)
	s.text = strings.ReplaceAll(comment.ReplaceAllString(text, ""), "\\\n", " ")
	(&shellReader{text: text, into: &s}).commands("")
	return s
}

// dropHereDocuments takes the lines of here documents out.
func dropHereDocuments(text string) string {
	var kept []string
	end := ""
	for line := range strings.SplitSeq(text, "\n") {
		if end != "" {
			if strings.TrimLeft(line, "\t") == end {
				end = ""
			}
			continue
		}
		if m := hereDocument.FindStringSubmatch(line); m != nil && !strings.Contains(line, "<<<") {
			end = m[1]
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

type shellReader struct {
	text string
	at   int
	into *script
}

// rest is what is still to be read.
func (r *shellReader) rest() string { return r.text[r.at:] }

// commands reads commands up to the text end, which it passes: "" is the end of all.
func (r *shellReader) commands(end string) {
	first, cases, pattern := true, 0, false
	for r.at < len(r.text) {
		rest := r.rest()
		switch c := rest[0]; {
		case pattern && c == ')':
			pattern, first = false, true
			r.at++
		case end != "" && !pattern && strings.HasPrefix(rest, end):
			r.at += len(end)
			return
		case c == '#':
			r.skipTo("\n")
		case strings.HasPrefix(rest, ";;"):
			r.at += 2
			pattern, first = true, true
		case strings.HasPrefix(rest, "(("):
			r.skipTo("))")
		case strings.HasPrefix(rest, "[[ "):
			r.condition()
		case c == '(' && !pattern:
			r.at++
			r.commands(")")
		case c == '>' || c == '<':
			r.redirection()
		case c == '\n' || c == ';' || c == '|' || c == '&' || c == '(':
			r.at++
			first = true
		case c == ' ' || c == '\t' || c == ')':
			r.at++
		default:
			word := r.word()
			switch {
			case word == "case":
				cases++
				first = false
			case word == "in" && cases > 0 && !pattern:
				cases--
				pattern = true
			case word == "esac":
				pattern, first = false, false
			case pattern:
			case !first || assignment.MatchString(word):
				if !strings.HasPrefix(r.last(), "./") { // what was built here takes words of its own
					r.into.words = append(r.into.words, word)
				}
			case leading[word]:
				r.found(word)
			case leading[r.last()] && (strings.HasPrefix(word, "-") || word[0] >= '0' && word[0] <= '9'): // an option of it
			default:
				r.found(word)
				first = false
			}
		}
	}
}

// last is the command found last.
func (r *shellReader) last() string {
	if len(r.into.commands) == 0 {
		return ""
	}
	return r.into.commands[len(r.into.commands)-1]
}

func (r *shellReader) found(word string) { r.into.commands = append(r.into.commands, word) }

func (r *shellReader) skipTo(end string) {
	if i := strings.Index(r.rest(), end); i >= 0 {
		r.at += i + len(end)
		if end == "\n" {
			r.at--
		}
		return
	}
	r.at = len(r.text)
}

// condition reads [[ … ]]: no commands but those substituted.
func (r *shellReader) condition() {
	for r.at < len(r.text) && !strings.HasPrefix(r.rest(), "]]") {
		if strings.ContainsRune(" \t\n<>()|&;", rune(r.text[r.at])) {
			r.at++
			continue
		}
		r.word()
	}
	r.at = min(r.at+2, len(r.text))
}

// redirection reads what one leads to. <( and >( begin commands.
func (r *shellReader) redirection() {
	for r.at < len(r.text) && strings.ContainsRune("<>&|", rune(r.text[r.at])) {
		r.at++
	}
	if r.at < len(r.text) && r.text[r.at] == '(' {
		return
	}
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
	if r.at < len(r.text) {
		r.word()
	}
}

// array reads what stands between brackets. Commands are put together in arrays.
func (r *shellReader) array() {
	r.at++
	for r.at < len(r.text) && r.text[r.at] != ')' {
		word := ""
		if !strings.ContainsRune(" \t\n", rune(r.text[r.at])) {
			word = r.word()
		}
		if word == "" {
			r.at++
			continue
		}
		r.into.words = append(r.into.words, word)
	}
	r.at = min(r.at+1, len(r.text))
}

// word reads a word, with the commands substituted in it.
func (r *shellReader) word() string {
	start := r.at
	for r.at < len(r.text) {
		rest := r.rest()
		switch c := rest[0]; {
		case c == '\\':
			r.at = min(r.at+2, len(r.text))
		case c == '\'':
			r.at++
			from := r.at
			r.skipTo("'")
			r.into.quoted = append(r.into.quoted, strings.TrimSuffix(r.text[from:r.at], "'"))
		case c == '"':
			r.at++
			r.doubleQuoted()
		case strings.HasPrefix(rest, "$(("):
			r.skipTo("))")
		case strings.HasPrefix(rest, "$("):
			r.at += 2
			r.commands(")")
		case strings.HasPrefix(rest, "${"):
			r.skipTo("}")
		case c == '(' && strings.HasSuffix(r.text[start:r.at], "="): // an array
			r.array()
		case strings.HasPrefix(rest, "()"): // the head of a function
			r.at += 2
			return ""
		case strings.ContainsRune(" \t\n;|&()<>", rune(c)):
			return r.text[start:r.at]
		default:
			r.at++
		}
	}
	return r.text[start:r.at]
}

func (r *shellReader) doubleQuoted() {
	for r.at < len(r.text) {
		switch rest := r.rest(); {
		case rest[0] == '"':
			r.at++
			return
		case rest[0] == '\\':
			r.at = min(r.at+2, len(r.text))
		case strings.HasPrefix(rest, "$(("):
			r.skipTo("))")
		case strings.HasPrefix(rest, "$("):
			r.at += 2
			r.commands(")")
		default:
			r.at++
		}
	}
}
