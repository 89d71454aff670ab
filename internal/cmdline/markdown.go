package cmdline

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Markdown returns a reference of p in GitHub's Markdown: every command with its usage,
// options, sections and examples, then the exit codes and the variables of the
// environment. It names no version, so that it changes only with p. intro is Markdown
// that stands below the heading.
func Markdown(p *Program, intro string) string {
	m := newMarkdown()
	m.line("# Command line")
	m.line(strings.TrimSpace(intro))
	m.paragraph(p.AboutOptions)
	for i := range p.Commands {
		m.command(p, &p.Commands[i], "##")
	}
	m.line("## Exit codes")
	codes := make([]Item, len(p.ExitCodes))
	for i, e := range p.ExitCodes {
		codes[i] = Item{fmt.Sprint(e.Code), e.Text}
	}
	m.table("code", codes)
	m.line("## Environment")
	variables := make([]Item, len(p.Environment))
	for i, v := range p.Environment {
		variables[i] = Item{strings.Join(v.Names, ", "), v.Text}
	}
	m.table("variable", variables)
	return strings.TrimRight(m.b.String(), "\n") + "\n"
}

// markdown is a page in GitHub's Markdown that is being written.
type markdown struct {
	b strings.Builder
	// options finds options in running text, with the text that must stand before them.
	// special finds characters with a meaning in Markdown.
	options, special *regexp.Regexp
}

// newMarkdown begins a page.
func newMarkdown() *markdown {
	return &markdown{
		options: regexp.MustCompile(`(^|[ (])(--?[A-Za-z0-9][A-Za-z0-9-]*(?:=[A-Za-z]+)?)`),
		special: regexp.MustCompile("[\\\\`*<>\\[\\]|]|\\b_|_\\b"),
	}
}

// line writes Markdown and an empty line.
func (m *markdown) line(text string) { m.b.WriteString(text + "\n\n") }

// paragraph writes running text, wrapped.
func (m *markdown) paragraph(text string) {
	if text != "" {
		m.line(wrap(m.prose(text), 0, helpColumns))
	}
}

// prose returns running text in which options are code, and everything else is escaped.
func (m *markdown) prose(text string) string {
	var b strings.Builder
	text, rest := strings.Join(strings.Fields(text), " "), 0
	for _, at := range m.options.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(m.escape(text[rest:at[4]]) + "`" + text[at[4]:at[5]] + "`")
		rest = at[5]
	}
	return b.String() + m.escape(text[rest:])
}

func (m *markdown) escape(text string) string { return m.special.ReplaceAllString(text, `\$0`) }

// code returns literal text for a cell of a table, where a bar would end the cell.
func (m *markdown) code(text string) string {
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// block writes literal lines.
func (m *markdown) block(lines ...string) { m.line("```\n" + strings.Join(lines, "\n") + "\n```") }

// table writes items in two columns. The first column has a heading.
func (m *markdown) table(heading string, items []Item) {
	m.b.WriteString(strings.Replace("| "+heading+" | |", "|  |", "| |", 1) + "\n|---|---|\n")
	for _, i := range items {
		fmt.Fprintf(&m.b, "| %s | %s |\n", m.code(i.Term), m.prose(i.Text))
	}
	m.b.WriteByte('\n')
}

// command writes the reference of a command and its subcommands, below a heading of
// that level.
func (m *markdown) command(p *Program, c *Command, level string) {
	m.line(level + " " + c.Title(p.Name))
	if len(c.Commands) == 0 {
		m.block(c.usage(p.Name))
	}
	for paragraph := range paragraphs(c.Description) {
		m.paragraph(paragraph)
	}
	for i := range c.Commands {
		m.command(p, &c.Commands[i], level+"#")
	}
	for _, t := range c.Topics {
		m.table(t.Title, optionItems(t.Options))
	}
	if off := c.off(); len(off) > 0 {
		m.paragraph(aboutOff + " " + strings.Join(off, ", ") + aboutShortOff)
	}
	for _, s := range c.Sections {
		m.line(level + "# " + s.Title)
		for paragraph := range paragraphs(s.Text) {
			m.paragraph(paragraph)
		}
		if len(s.Items) > 0 {
			m.table("", s.Items)
		}
	}
	if len(c.Files) > 0 {
		m.line(level + "# Files")
		m.table("", c.Files)
	}
	for _, e := range c.Examples {
		m.paragraph(e.Text)
		m.block(e.Line)
	}
}

// optionItems returns the options as items, with names and value as the term.
func optionItems(options []Option) []Item {
	items := make([]Item, len(options))
	for i, o := range options {
		text := sentence(o.Text, slices.Concat(candidatesFor(o.Value).words, o.Names)...)
		items[i] = Item{strings.TrimSpace(strings.Join(o.Names, ", ") + " " + o.Value), strings.TrimSpace(text + " " + o.More)}
	}
	return items
}
