package args

import (
	"os"
	"regexp"
	"strings"

	"gdrcp/internal/printable"
)

// sshOption is an option of scp that scp passes to ssh. rsync and gdrcp use its letter for
// something else, or not at all. The text after the letter shows which option is meant.
type sshOption struct {
	letter, value string
	isWord        bool  // value is the next argument, which would otherwise be an operand
	otherwise     error // the error for this letter if the option is not ssh's; nil if gdrcp has such an option
}

// sshOptionOf parses a letter as scp does. joined follows the letter in the same argument, and rest
// are the arguments after it. It returns false if the value cannot belong to an option of ssh.
func sshOptionOf(letter, joined string, rest []string) (sshOption, bool) {
	s := sshOption{letter: letter, value: joined}
	if joined == "" && len(rest) > 0 {
		s.value, s.isWord = rest[0], true
	}
	if s.value == "" || s.value[0] == '-' {
		return s, false
	}
	_, err := os.Stat(s.value)
	isThere := err == nil
	is := func(form string) bool { return regexp.MustCompile(form).MatchString(s.value) }
	switch letter {
	case "P": // a port
		return s, !isThere && is(`^[1-9][0-9]{0,4}$`)
	case "o":
		return s, !isThere && is(`^[A-Za-z][A-Za-z0-9]*=.`)
	case "i": // a file that looks like an identity file
		return s, is(`(^|/)id_[^/]*$|(^|/)\.ssh/[^/]+$|\.(pem|key)$`)
	case "J":
		return s, !isThere && s.isWord && is(`^[^/]+$`)
	case "F":
		return s, is(`/`) || s.isWord && isThere
	}
	return s, false
}

// settleSSH returns an error that names the alternative to options that look like ssh's, if there
// are any. They are ssh's if SRC and DST remain without their values. Otherwise the error is about
// the first letter that is an option neither of ssh nor of gdrcp.
func (a *arguments) settleSSH() error {
	operands, certain := len(a.operands), false
	var otherwise error
	command, written := "ssh", []string{}
	for _, g := range a.options {
		if g.is.name == "rsh" {
			command = g.value
		}
	}
	for _, s := range a.ssh {
		between := ""
		if s.isWord {
			operands, between = operands-1, " "
		}
		certain = certain || !s.isWord
		if otherwise == nil {
			otherwise = s.otherwise
		}
		value := s.value
		if strings.ContainsAny(value, ` '"`) { // as --rsh accepts it
			value = `"` + strings.ReplaceAll(value, `"`, `""`) + `"`
		}
		command += " -" + strings.Replace(s.letter, "P", "p", 1) + " " + value
		written = append(written, "-"+s.letter+between+s.value)
	}
	if len(a.ssh) == 0 || len(a.commands) > 0 || operands < 2 && !certain {
		return otherwise
	}
	return UsageErrorf("%s: pass options of ssh by -e '%s'", printable.Text(strings.Join(written, " ")), printable.Text(strings.ReplaceAll(command, "'", `'\''`)))
}
