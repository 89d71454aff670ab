package cmdline

import (
	"fmt"
	"slices"
	"strings"
)

// Page is a manual page.
type Page struct {
	Name string // of its file: gdrcp-serve.1
	Text string // in the language of man(7)
}

// Pages returns the manual pages of p, in section 1: one for the program, and one for
// each of its commands with that command's subcommands.
func Pages(p *Program) []Page {
	var all []Page
	for i := range p.Commands {
		c := &p.Commands[i]
		all = append(all, Page{pageName(p, c) + ".1", page(p, c)})
	}
	return all
}

// pageName returns the name under which man(1) finds a page.
func pageName(p *Program, c *Command) string {
	return strings.Join(append([]string{p.Name}, c.Words...), "-")
}

func page(p *Program, c *Command) string {
	r := newRoff()
	name := pageName(p, c)
	r.macro("TH", strings.ToUpper(name), "1", p.Date, p.Name+" "+p.Version, "User commands")
	r.macro("SH", "NAME")
	r.raw(literal(name) + ` \- ` + escape(c.Summary))
	r.macro("SH", "SYNOPSIS")
	synopsis(r, p, c)
	r.macro("SH", "DESCRIPTION")
	describe(r, c.Description)
	if len(c.Words) == 0 && len(p.Commands) > 1 {
		commandList(r, p)
	}
	for i := range c.Commands {
		subcommand(r, p, &c.Commands[i])
	}
	if len(c.Topics) > 0 {
		r.macro("SH", "OPTIONS")
		r.prose("Options may stand anywhere among the operands; -- ends them. " + p.AboutOptions)
		manOptions(r, c, true)
	}
	for _, s := range c.Sections {
		r.macro("SH", strings.ToUpper(s.Title))
		describe(r, s.Text)
		items(r, s.Items)
	}
	footer(r, p, c)
	return r.b.String()
}

// synopsis writes the usage of a command and its subcommands.
func synopsis(r *roff, p *Program, c *Command) {
	for i, leaf := range c.leaves() {
		if i > 0 {
			r.macro("br")
		}
		r.raw(strings.TrimSpace(bold(literal(leaf.Title(p.Name))) + " " + r.operandsText(leaf.Operands)))
	}
}

// operandsText returns the operands of a usage, with their names in italics.
func (r *roff) operandsText(operands string) string {
	return r.places.ReplaceAllStringFunc(literal(operands), italic)
}

// describe writes paragraphs.
func describe(r *roff, text string) {
	first := true
	for paragraph := range paragraphs(text) {
		if !first {
			r.macro("PP")
		}
		r.prose(paragraph)
		first = false
	}
}

// items writes terms, each with its text.
func items(r *roff, all []Item) {
	for _, i := range all {
		r.macro("TP")
		r.raw(bold(literal(i.Term)))
		r.prose(sentence(i.Text))
	}
}

// commandList writes the list of the other commands.
func commandList(r *roff, p *Program) {
	r.macro("SH", "COMMANDS")
	for i := range p.Commands[1:] {
		c := &p.Commands[i+1]
		r.macro("TP")
		r.raw(bold(literal(c.Title(p.Name))))
		r.prose(sentence(c.Summary))
		r.raw(`See ` + bold(literal(pageName(p, c))) + `(1).`)
	}
}

// subcommand writes a section about one of several commands.
func subcommand(r *roff, p *Program, c *Command) {
	r.macro("SH", strings.ToUpper(strings.Join(c.Words, " ")))
	r.raw(strings.TrimSpace(bold(literal(c.Title(p.Name))) + " " + r.operandsText(c.Operands)))
	r.macro("PP")
	describe(r, c.Description)
	manOptions(r, c, false)
}

// manOptions writes options in the order of their topics, each of which has a
// heading if titled.
func manOptions(r *roff, c *Command, titled bool) {
	for _, t := range c.Topics {
		if titled {
			r.macro("SS", t.Title)
		}
		for _, o := range t.Options {
			r.macro("TP")
			r.raw(optionTag(&o))
			r.prose(strings.TrimSpace(sentence(o.Text, candidatesFor(o.Value).words...) + " " + o.More))
		}
	}
	if off := c.off(); len(off) > 0 {
		r.macro("PP")
		r.prose(aboutOff + " " + strings.Join(off, ", ") + aboutShortOff)
	}
}

// optionTag returns an option's names with its value.
func optionTag(o *Option) string {
	names := make([]string, len(o.Names))
	for i, n := range o.Names {
		names[i] = bold(literal(n))
	}
	tag := strings.Join(names, ", ")
	if o.Value != "" {
		tag += " " + valueText(o.Value)
	}
	return tag
}

// valueText returns a value's name: words that stand for themselves in bold, the rest
// in italics.
func valueText(value string) string {
	parts := strings.Split(value, "|")
	for i, part := range parts {
		if len(candidatesFor(part).words) > 0 || part == "-" {
			parts[i] = bold(literal(part))
		} else {
			parts[i] = italic(literal(part))
		}
	}
	return strings.Join(parts, "|")
}

// sentence returns text with a full stop, and with a capital unless it begins with an
// option or with a literal word.
func sentence(text string, typed ...string) string {
	text = strings.TrimSuffix(text, ".")
	if text == "" {
		return ""
	}
	if first, _, _ := strings.Cut(text, " "); !slices.Contains(typed, strings.Trim(first, ",:")) {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return text + "."
}

// footer writes the end of every page.
func footer(r *roff, p *Program, c *Command) {
	r.macro("SH", "EXIT STATUS")
	for _, e := range p.ExitCodes {
		r.macro("TP")
		r.raw(bold(fmt.Sprint(e.Code)))
		r.prose(sentence(e.Text))
	}
	r.macro("SH", "ENVIRONMENT")
	for _, v := range p.Environment {
		r.macro("TP")
		names := make([]string, len(v.Names))
		for i, n := range v.Names {
			names[i] = bold(literal(n))
		}
		r.raw(strings.Join(names, ", "))
		r.prose(sentence(v.Text))
	}
	if len(c.Files) > 0 {
		r.macro("SH", "FILES")
		items(r, c.Files)
	}
	examples(r, c)
	r.macro("SH", "SEE ALSO")
	var others []string
	for i := range p.Commands {
		if name := pageName(p, &p.Commands[i]); name != pageName(p, c) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for i, name := range others {
		others[i] = bold(literal(name)) + "(1)"
	}
	r.raw(strings.Join(others, ",\n"))
}

// examples writes the examples of a command and of its subcommands.
func examples(r *roff, c *Command) {
	all := slices.Clone(c.Examples)
	for i := range c.Commands {
		all = append(all, c.Commands[i].Examples...)
	}
	if len(all) == 0 {
		return
	}
	r.macro("SH", "EXAMPLES")
	for i, e := range all {
		if i > 0 {
			r.macro("PP")
		}
		r.prose(e.Text)
		r.macro("PP")
		r.macro("RS", "4")
		r.macro("EX")
		r.raw(literal(e.Line))
		r.macro("EE")
		r.macro("RE")
	}
}
