// Package cmdline describes a command line, and writes from the description
// what people and their shells read of it: help, manual pages, a reference in
// Markdown, and scripts that complete what is being typed.
package cmdline

import "strings"

// Program is a program with commands.
type Program struct {
	Name    string
	Version string
	Date    string // of the version, as 2006-01-02; "" where it is not known
	Summary string // what it does, to follow its name: "copies files"

	// Commands are what it can do, each with its own subcommands. The first one
	// has no words: it is what the program does without the name of another.
	Commands    []Command
	Environment []Variable
	ExitCodes   []ExitCode

	AboutOptions string // sentences: how options and their values are written
}

// Command is a command for people. Those that only the program itself calls
// are not described.
type Command struct {
	Words       []string // manifest create
	Summary     string   // what it does, without a full stop: "serve a directory"
	Operands    string   // as its usage has them: "[OPTIONS] SRC... DST"
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

// Item is a term and what there is to say of it.
type Item struct{ Term, Text string }

// Topic is options that belong together.
type Topic struct {
	Title   string
	Options []Option
}

// Option is an option for people.
type Option struct {
	Names []string // with their dashes, the short one first
	Off   []string // what turns it off: --no-recursive, --no-r
	Value string   // what its value is called, as "FILE" or "auto|verbs|tcp"; "" if it takes none
	Text  string
	More  string // sentences for manuals, which help leaves out; "" if Text says it all
}

// Example is a command line to learn from.
type Example struct {
	Text string // what it does, a sentence
	Line string // the command line as a shell takes it
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

// Title is the command's words behind the program's name.
func (c *Command) Title(program string) string {
	return strings.Join(append([]string{program}, c.Words...), " ")
}

// usage is the command's words with its operands.
func (c *Command) usage(program string) string {
	return strings.TrimSpace(c.Title(program) + " " + c.Operands)
}

// options are those of all topics.
func (c *Command) options() []Option {
	var all []Option
	for _, t := range c.Topics {
		all = append(all, t.Options...)
	}
	return all
}

// off is what turns options off.
func (c *Command) off() []string {
	var all []string
	for _, o := range c.options() {
		if len(o.Off) > 0 {
			all = append(all, o.Off[0])
		}
	}
	return all
}

// leaves are the commands below c that have no subcommands, c itself if it is
// one.
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

// source is where the words come from that can stand somewhere.
type source int

const (
	anything source = iota // nobody can know
	files
	directories
	devices // RDMA devices of this host
	targets // files, and what is on other hosts
)

// candidates are what can stand in the place of a value or an operand.
type candidates struct {
	words []string
	from  source
}

// sources are the names of values and operands in which files and the like can
// stand.
func sources() map[string]source {
	return map[string]source{
		"FILE": files, "PATH": files, "MANIFEST": files, "A": files, "B": files, "DIR": directories, "DEV": devices,
		"SRC...": targets, "SRC": targets, "DST": targets,
	}
}

// candidatesFor reads the name of a value or an operand: words in lower case
// between bars stand for themselves.
func candidatesFor(name string) candidates {
	var c candidates
	known := sources()
	for part := range strings.SplitSeq(name, "|") {
		if from, ok := known[part]; ok {
			c.from = from
		} else if part != "" && strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789") == "" {
			c.words = append(c.words, part)
		}
	}
	return c
}

// operands are the candidates for the operands of c, whichever comes. Options
// in its usage, and their values, are none.
func (c *Command) operands() candidates {
	var all candidates
	depth, value := 0, false
	for word := range strings.FieldsSeq(c.Operands) {
		optional := depth > 0 || strings.HasPrefix(word, "[")
		depth += strings.Count(word, "[") - strings.Count(word, "]")
		option := strings.HasPrefix(word, "-")
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
