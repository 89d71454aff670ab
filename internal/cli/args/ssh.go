package args

import (
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
)

// sshOption is an option of scp that is really for ssh. rsync and gdrcp use its letter
// for something else, or not at all. The text after the letter shows which option is
// meant.
type sshOption struct {
	letter, value string
	// isWord: value is the next argument, which would otherwise be an operand.
	isWord bool
	// otherwise is the error of the letter if it is not ssh's; nil if gdrcp has such an
	// option.
	otherwise error
}

// sshOptionOf reads a letter as scp does. joined follows the letter in the same
// argument, and rest are the arguments after it. It returns false if the value cannot
// be ssh's.
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

// looksLikeKey reports whether a file's name looks like that of an identity of ssh.
func looksLikeKey(file string) bool {
	name := path.Base(file)
	return strings.HasPrefix(name, "id_") || path.Base(path.Dir(file)) == ".ssh" || path.Ext(name) == ".pem" || path.Ext(name) == ".key"
}

// settleSSH returns what to use instead of options that look like ssh's. They are ssh's
// if SRC and DST are left without their values.
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

// notSSH returns the error of the first letter that looked like an option of ssh, and
// is an option neither of ssh nor of gdrcp.
func (a *arguments) notSSH() error {
	for _, s := range a.ssh {
		if s.otherwise != nil {
			return s.otherwise
		}
	}
	return nil
}

// commandWord returns a word in the form of the value of --rsh.
func commandWord(s string) string {
	if !strings.ContainsAny(s, ` '"`) {
		return s
	}
	return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
}
