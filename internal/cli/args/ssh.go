package args

import (
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
)

// sshOption is an option of scp that is ssh's in truth, and that rsync and gdrcp have
// by the same letter for something else, or not at all. What stands behind the
// letter tells which one is meant.
type sshOption struct {
	letter, value string
	// isWord: value is the next argument, which would else be an operand.
	isWord bool
	// otherwise is the error of the letter where it is not ssh's; nil where gdrcp
	// has it.
	otherwise error
}

// sshOptionOf reads a letter as scp does, joined being what follows it in the same
// argument and rest the arguments behind; false where the value is none of ssh's.
func sshOptionOf(letter, joined string, rest []string) (sshOption, bool) {
	s := sshOption{letter: letter, value: joined}
	if joined == "" && len(rest) > 0 {
		s.value, s.isWord = rest[0], true
	}
	_, err := os.Stat(s.value)
	switch isThere := err == nil; {
	case s.value == "" || s.value[0] == '-':
		return s, false
	case letter == "P": // a port
		n, err := strconv.ParseUint(s.value, 10, 16)
		return s, err == nil && n > 0 && !isThere
	case letter == "o":
		return s, regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*=.`).MatchString(s.value) && !isThere
	case letter == "i":
		return s, looksLikeKey(s.value)
	case letter == "J":
		return s, s.isWord && !isThere && !strings.Contains(s.value, "/")
	case letter == "F":
		return s, strings.Contains(s.value, "/") || s.isWord && isThere
	}
	return s, false
}

// looksLikeKey tells by its name whether a file is an identity of ssh.
func looksLikeKey(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "id_") || path.Base(path.Dir(file)) == ".ssh" || path.Ext(name) == ".pem" || path.Ext(name) == ".key"
}

// settleSSH says of options that were read as ssh's by the way that they look what to
// use instead. They are ssh's where SRC and DST are left without their values.
func (a *arguments) settleSSH() error {
	if len(a.ssh) == 0 || len(a.commands) > 0 {
		return a.notSSH()
	}
	operands, certain := len(a.operands), false
	for _, s := range a.ssh {
		if s.isWord {
			operands--
		} else {
			certain = true
		}
	}
	if operands < 2 && !certain {
		return a.notSSH()
	}
	command, given := "ssh", ""
	for _, g := range a.options {
		if g.is.name == "rsh" {
			command = g.value
		}
	}
	for _, s := range a.ssh {
		letter := s.letter
		if letter == "P" {
			letter = "p"
		}
		command += " -" + letter + " " + commandWord(s.value)
		given += " -" + s.letter
		if s.isWord {
			given += " "
		}
		given += s.value
	}
	return UsageErrorf("%s: pass options of ssh by -e '%s'", printable.Text(given[1:]), printable.Text(strings.ReplaceAll(command, "'", `'\''`)))
}

// notSSH is the error of the first letter that looked like one of ssh's, is none,
// and is none of gdrcp's either.
func (a *arguments) notSSH() error {
	for _, s := range a.ssh {
		if s.otherwise != nil {
			return s.otherwise
		}
	}
	return nil
}

// commandWord is a word as the value of --rsh has it.
func commandWord(s string) string {
	if !strings.ContainsAny(s, ` '"`) {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
