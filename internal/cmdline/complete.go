package cmdline

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Shells are the shells for which Completion has a script.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion returns a script with which a shell completes the command line of p. The
// script is this project's own. It needs only the shell, does not use the network, and
// starts only programs of a base system, for names of hosts and devices. The error is
// for a shell that is not among Shells.
func Completion(p *Program, shell string) (string, error) {
	switch shell {
	case "bash":
		return bashScript(p), nil
	case "zsh":
		return zshScript(p), nil
	case "fish":
		return fishScript(p), nil
	}
	return "", fmt.Errorf("no completion for %q: only for %s", shell, strings.Join(Shells(), ", "))
}

// key returns the scripts' name of a command: its words; "" for the program itself.
func (c *Command) key() string { return strings.Join(c.Words, " ") }

// everyCommand lists the commands of p with their subcommands.
func everyCommand(p *Program) []*Command {
	var all []*Command
	var add func(list []Command)
	add = func(list []Command) {
		for i := range list {
			all = append(all, &list[i])
			add(list[i].Commands)
		}
	}
	add(p.Commands)
	return all
}

// below returns the commands whose name can follow the words of c.
func below(p *Program, c *Command) []Command {
	if len(c.Words) == 0 {
		return p.Commands[1:]
	}
	return c.Commands
}

// lastWords returns the last word of each command, which distinguishes it from its
// neighbours.
func lastWords(list []Command) []string {
	words := make([]string, len(list))
	for i := range list {
		words[i] = list[i].Words[len(list[i].Words)-1]
	}
	return words
}

// names returns all names of options, and one name that turns each off.
func names(options []Option) []string {
	var all []string
	for _, o := range options {
		all = append(append(all, o.Names...), o.Off[:min(1, len(o.Off))]...)
	}
	return all
}

// within returns the options that can follow the words of c. Between the words of
// commands these are the options of all commands that can follow.
func (c *Command) within() []Option {
	var all []Option
	for _, leaf := range c.leaves() {
		for _, o := range leaf.options() {
			if !slices.ContainsFunc(all, func(has Option) bool { return slices.Equal(has.Names, o.Names) }) {
				all = append(all, o)
			}
		}
	}
	return all
}

// valued returns the names of those options that take a value.
func valued(c *Command) []string {
	var all []string
	for _, o := range c.within() {
		if o.Value != "" {
			all = append(all, o.Names...)
		}
	}
	return all
}

// text returns the scripts' name of a source of words.
func (s source) text() string {
	switch s {
	case files:
		return "files"
	case directories:
		return "directories"
	case devices:
		return "devices"
	case targets:
		return "targets"
	}
	return ""
}

// briefColumns bounds the text beside a candidate.
const briefColumns = 60

// brief shortens a text that stands beside a candidate.
func brief(text string) string {
	for _, end := range []string{"; ", ": ", " (", ". ", ", "} {
		if before, _, found := strings.Cut(text, end); found && before != "" {
			text = before
		}
	}
	text = strings.TrimSuffix(text, ".")
	if utf8.RuneCountInString(text) <= briefColumns {
		return text
	}
	first, _, _ := strings.Cut(wrap(text, 0, briefColumns-1), "\n")
	return first + "…"
}

// quoted returns any text as one word of a shell.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// script is a shell script that is being written.
type script struct{ strings.Builder }

// line writes a line.
func (s *script) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

// sshHosts prints, in bash and zsh, the hosts that ssh knows. It leaves out names that
// a shell could take for something else.
const sshHosts = `
# The hosts that ssh knows by name.
_PROGRAM_hosts() {
    {
        sed -n 's/^[[:blank:]]*[Hh]ost[[:blank:]=]\{1,\}//p' ~/.ssh/config | tr -s '[:blank:]' '\n'
        cat ~/.ssh/known_hosts /etc/ssh/ssh_known_hosts | sed 's/[[:blank:]].*//' | tr ',' '\n'
    } 2>/dev/null | grep -x '[[:alnum:]][[:alnum:]._-]*' | sort -u
}
`
