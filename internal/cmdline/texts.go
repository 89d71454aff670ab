package cmdline

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/cpuguy83/go-md2man/v2/md2man"
)

//go:embed text scripts
var embedded embed.FS

const (
	helpColumns   = 79 // width of help
	optionColumns = 30 // start of an option's text
	helpExamples  = 2
)

// Help writes the help of a command for a terminal: its common options, one per line,
// or everything. The writer must remember its own errors.
func Help(w io.Writer, p *Program, c Command, all bool) error {
	var others []Command
	if c.Title == p.All[0].Title {
		others = p.All[1:]
	}
	for _, leaf := range c.Commands {
		c.Examples = append(c.Examples[:len(c.Examples):len(c.Examples)], leaf.Examples...)
	}
	c.Examples = c.Examples[:min(helpExamples, len(c.Examples))]
	return execute(w, "help", struct {
		Program
		Command
		Others []Command
		All    bool
	}{*p, c, others, all})
}

// Markdown writes a reference of p in GitHub's Markdown. It names no version, so that
// it changes only with p. intro is Markdown for below the heading.
func Markdown(w io.Writer, p *Program, intro string) error {
	return execute(w, "reference", struct {
		Program
		Intro string
	}{*p, intro})
}

// Pages returns the manual pages of p, in section 1, by file name: one for the program,
// and one for each command including its subcommands. Like urfave/cli, it uses md2man
// to make them from Markdown.
func Pages(p *Program) (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, c := range p.All {
		var text bytes.Buffer
		if err := execute(&text, "manual", struct {
			Program
			Command
		}{*p, c}); err != nil {
			return nil, err
		}
		all[c.Page()+".1"] = md2man.Render(text.Bytes())
	}
	return all, nil
}

// Shells returns the shells for which Script has a script.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Script returns a script with which a shell completes command lines. Like the scripts
// of urfave/cli, it runs the program with the operands "completion -- words" and the
// words up to the cursor. The answer is the first result of Complete on a line, then
// one candidate per line, with a tab before its description.
func Script(shell string) ([]byte, error) { return embedded.ReadFile("scripts/" + shell) }

// execute writes a text from a template.
func execute(w io.Writer, name string, data any) error {
	options := regexp.MustCompile(`(^|[ (])(--?[A-Za-z0-9][A-Za-z0-9-]*(?:=[A-Za-z]+)?)`)
	special := regexp.MustCompile("[\\\\`*<>\\[\\]|]|\\b_|_\\b")
	cell := func(text string) string { return strings.ReplaceAll(text, "|", `\|`) } // of a table
	prose := func(text string) string {                                             // options are code; everything else is escaped
		var b strings.Builder
		text, rest := strings.Join(strings.Fields(text), " "), 0
		for _, at := range options.FindAllStringSubmatchIndex(text, -1) {
			b.WriteString(special.ReplaceAllString(text[rest:at[4]], `\$0`) + "`" + text[at[4]:at[5]] + "`")
			rest = at[5]
		}
		return b.String() + special.ReplaceAllString(text[rest:], `\$0`)
	}
	short := func(o Option) string { return Option{Names: o.Names[:min(2, len(o.Names))], Value: o.Value}.Tag() }
	t := template.New(name).Funcs(template.FuncMap{"wrap": wrap, "short": short, "column": column, "trim": func(s string) string { return strings.TrimSuffix(s, ":") }, "cell": cell, "prose": prose})
	if _, err := t.ParseFS(embedded, "text/"+name); err != nil {
		return err
	}
	return t.ExecuteTemplate(w, name, data)
}

// column returns lines with text beside left, or below it if left is long.
func column(left, text string) string {
	left, text = "  "+wrap(left, 6), wrap(text, optionColumns)
	if len(left) > optionColumns-2 {
		return fmt.Sprintf("%s\n%*s%s\n", left, optionColumns, "", text)
	}
	return fmt.Sprintf("%-*s%s\n", optionColumns, left, text)
}

// wrap breaks text into lines for a terminal. Each line except the first is indented.
func wrap(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		columns := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+columns > helpColumns:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += columns
	}
	return b.String()
}

// Brief shortens a text to its first clause.
func Brief(text string) string {
	for _, end := range []string{"; ", ": ", " (", ". ", ", "} {
		if before, _, found := strings.Cut(text, end); found && before != "" {
			text = before
		}
	}
	return strings.TrimSuffix(text, ".")
}
