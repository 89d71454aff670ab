// Package cmdline describes a command line. From the description it writes help, manual
// pages, a reference in Markdown, and completion scripts for shells.
package cmdline

import "strings"

// Program is a program with commands.
type Program struct {
	Name    string
	Version string
	Date    string // of the version, as 2006-01-02; "" if it is unknown
	Summary string // follows the program's name: "copies files"

	// Commands are the program's commands, each with its own subcommands. The first
	// command has no words: it runs when no other is named.
	Commands    []Command
	Environment []Variable
	ExitCodes   []ExitCode

	AboutOptions string // sentences: how options and their values are written
}

// Command is a command for people. Commands that only the program itself calls are not
// described.
type Command struct {
	Words       []string // manifest create
	Summary     string   // what it does, without a full stop: "serve a directory"
	Operands    string   // as in its usage: "[OPTIONS] SRC... DST"
	Description string   // paragraphs, divided by empty lines
	Topics      []Topic
	Commands    []Command
	Examples    []Example

	// Sections and Files are for manuals. Help leaves them out.
	Sections []Section
	Files    []Item // files that the command reads or writes besides its operands
}

// Section is a part of a manual with a heading of its own.
type Section struct {
	Title string
	Text  string // paragraphs, divided by empty lines
	Items []Item // below the text
}

// Item is a term with its text.
type Item struct{ Term, Text string }

// Topic is options that belong together.
type Topic struct {
	Title   string
	Options []Option
}

// Option is an option for people.
type Option struct {
	Names []string // with their dashes, the short one first
	Off   []string // names that turn it off: --no-recursive, --no-r
	Value string   // the name of its value, as "FILE" or "auto|verbs|tcp"; "" if it takes no value
	Text  string
	More  string // sentences for manuals, which help leaves out; "" if Text is enough
}

// Example is a command line to learn from.
type Example struct {
	Text string // a sentence that says what the line does
	Line string // the command line in shell syntax
}

// Variable is one or more variables of the environment.
type Variable struct {
	Names []string
	Text  string
}

// ExitCode is what an exit status means.
type ExitCode struct {
	Code int
	Text string
}

// Title returns the program's name and the command's words.
func (c *Command) Title(program string) string {
	return strings.Join(append([]string{program}, c.Words...), " ")
}

// usage returns the command's words with its operands.
func (c *Command) usage(program string) string {
	return strings.TrimSpace(c.Title(program) + " " + c.Operands)
}

// options returns the options of all topics.
func (c *Command) options() []Option {
	var all []Option
	for _, t := range c.Topics {
		all = append(all, t.Options...)
	}
	return all
}

// off returns the names that turn options off.
func (c *Command) off() []string {
	var all []string
	for _, o := range c.options() {
		if len(o.Off) > 0 {
			all = append(all, o.Off[0])
		}
	}
	return all
}

// leaves returns the commands below c that have no subcommands, or c itself if it has
// none.
func (c *Command) leaves() []Command {
	if len(c.Commands) == 0 {
		return []Command{*c}
	}
	var all []Command
	for i := range c.Commands {
		all = append(all, c.Commands[i].leaves()...)
	}
	return all
}

// source is a source of candidate words.
type source int

const (
	anything source = iota // no candidates
	files
	directories
	devices // RDMA devices of this host
	targets // files, here and on other hosts
)

// candidates are the words that can stand in the place of a value or an operand.
type candidates struct {
	words []string
	from  source
}

// sources maps the names of values and operands to their sources of words.
func sources() map[string]source {
	return map[string]source{
		"FILE": files, "PATH": files, "MANIFEST": files, "A": files, "B": files, "DIR": directories, "DEV": devices,
		"SRC": targets, "DST": targets,
	}
}

// candidatesFor returns the candidates for a value or an operand by its name: words in
// lower case between bars stand for themselves. An operand that may come several times ends
// in dots.
func candidatesFor(name string) candidates {
	var c candidates
	known := sources()
	for part := range strings.SplitSeq(strings.TrimSuffix(name, "..."), "|") {
		if from, ok := known[part]; ok {
			c.from = from
		} else if part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
			c.words = append(c.words, part)
		}
	}
	return c
}

// operands returns the candidates for any operand of c. Options in its usage, and their
// values, do not count; a bar may join an option to the value before it.
func (c *Command) operands() candidates {
	var all candidates
	depth, value := 0, false
	for word := range strings.FieldsSeq(c.Operands) {
		optional := depth > 0 || strings.HasPrefix(word, "[")
		depth += strings.Count(word, "[") - strings.Count(word, "]")
		option := strings.HasPrefix(word, "-") || strings.Contains(word, "|--")
		skip := optional || option || value
		value = option
		if skip {
			continue
		}
		one := candidatesFor(word)
		all.words = append(all.words, one.words...)
		all.from = max(all.from, one.from)
	}
	return all
}
