// Package cmdline describes a command line. From the description it generates help, a
// reference in Markdown and manual pages, and it completes words for shells.
package cmdline

import (
	"slices"
	"strings"
)

// Program describes the program and its commands.
type Program struct {
	Version      string
	Date         string    // of the version, as 2006-01-02; "" if it is unknown
	All          []Command // the first one runs if no other is named
	Environment  []Item
	ExitCodes    []Item
	AboutOptions string // sentences about how options and their values are written
}

// Command describes a command for users. Commands that only the program itself calls
// are not described.
type Command struct {
	Title       string // the words that call it: gdrcp manifest create
	Summary     string // what it does, without a full stop: "serve a directory"
	Operands    string // from its usage: "[OPTIONS] SRC... DST"
	Description string // paragraphs, separated by empty lines
	Topics      []Topic
	Commands    []Command
	Examples    []Item    // a command line in shell syntax, and a sentence about it
	Sections    []Section // in the reference and manuals, not in help
}

// Section is a part of a manual with its own heading.
type Section struct {
	Title string
	Text  string
	Items []Item // below the text
}

// Item is a term with its text.
type Item struct{ Term, Text string }

// Topic is a group of options.
type Topic struct {
	Title   string
	Options []Option
}

// Option describes an option for users.
type Option struct {
	Names []string // with their dashes, the short one first
	Off   string   // the name that turns it off, such as --no-recursive; or ""
	Value string   // the name of its value, such as "FILE" or "auto|verbs|tcp"; "" if it takes none
	Text  string
	More  string // sentences for manuals, not in help; "" if Text is enough
	Brief string // its line in the short help; "" if it is not there
}

// Word returns the last word of a command's title, which is its name.
func (c Command) Word() string { return c.Title[strings.LastIndexByte(c.Title, ' ')+1:] }

// Page returns the name under which man(1) finds the command's manual page.
func (c Command) Page() string { return strings.ReplaceAll(c.Title, " ", "-") }

// Usage returns the command's words with its operands.
func (c Command) Usage() string { return strings.TrimSpace(c.Title + " " + c.Operands) }

// Paragraphs returns the paragraphs of the description.
func (c Command) Paragraphs() []string { return strings.Split(c.Description, "\n\n") }

// Level returns the mark of a heading in the reference.
func (c Command) Level() string { return strings.Repeat("#", max(2, len(strings.Fields(c.Title)))) }

// Leaves returns the commands that can be called: c, or its subcommands.
func (c Command) Leaves() []Command {
	if len(c.Commands) > 0 {
		return c.Commands
	}
	return []Command{c}
}

// Options returns the options of all topics and of subcommands.
func (c Command) Options() []Option {
	var all []Option
	for _, leaf := range c.Leaves() {
		for _, t := range leaf.Topics {
			all = append(all, t.Options...)
		}
	}
	return all
}

// Off describes how options are turned off. It returns "" if the command has no such options.
func (c Command) Off() string {
	var names []string
	for _, o := range c.Options() {
		if o.Off != "" {
			names = append(names, o.Off)
		}
	}
	if names == nil || len(c.Commands) > 0 {
		return ""
	}
	return "What was turned on, also by an option that stands for several, is turned off by " + strings.Join(names, ", ") +
		" (or by --no- and the option's letter). The last one counts."
}

// Tag returns an option's names with its value.
func (o Option) Tag() string { return strings.TrimSpace(strings.Join(o.Names, ", ") + " " + o.Value) }

// Items returns the options of a topic with their full texts.
func (t Topic) Items() []Item {
	items := make([]Item, len(t.Options))
	for i, o := range t.Options {
		words, _ := candidatesFor(o.Value)
		text := strings.TrimSuffix(o.Text, ".") + "."
		// A word that the user types keeps its lower case.
		if first, _, _ := strings.Cut(text, " "); !slices.Contains(slices.Concat(words, o.Names), strings.Trim(first, ",:")) {
			text = strings.ToUpper(text[:1]) + text[1:]
		}
		items[i] = Item{o.Tag(), strings.TrimSpace(text + " " + o.More)}
	}
	return items
}
