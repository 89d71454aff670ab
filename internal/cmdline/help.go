package cmdline

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

const (
	helpIndentColumns = 28  // before the text about an option
	helpColumns       = 110 // of a line of help
)

// Help writes the help of a command for a terminal. The writer must remember its own
// errors.
func Help(w io.Writer, p *Program, c *Command) {
	if len(c.Words) == 0 {
		fmt.Fprintf(w, "%s %s.\n\n", p.Name, p.Summary)
	}
	fmt.Fprintf(w, "Usage: %s\n", c.usage(p.Name))
	if len(c.Words) == 0 {
		for _, other := range p.Commands[1:] {
			fmt.Fprintf(w, "       %s\n", other.usage(p.Name))
		}
	}
	for paragraph := range paragraphs(c.Description) {
		fmt.Fprintf(w, "\n%s\n", wrap(paragraph, 0, helpColumns))
	}
	for _, sub := range c.Commands {
		fmt.Fprintf(w, "\n%s\n    %s\n", sub.usage(p.Name), wrap(sub.Description, 4, helpColumns))
	}
	if len(c.Commands) > 0 {
		fmt.Fprintf(w, "\nThe options of each: %s --help, and so on.\n", c.Commands[0].Title(p.Name))
	} else {
		writeOptions(w, c)
	}
	fmt.Fprint(w, "\nExit codes:\n")
	for _, e := range p.ExitCodes {
		fmt.Fprintf(w, "  %-5d%s\n", e.Code, wrap(e.Text, 7, helpColumns))
	}
}

// writeOptions writes the help of a command's options.
func writeOptions(w io.Writer, c *Command) {
	fmt.Fprint(w, "\nOptions, anywhere among the operands (-- ends them):\n")
	for _, topic := range c.Topics {
		fmt.Fprintf(w, "\n%s:\n", topic.Title)
		for _, o := range topic.Options {
			o.write(w)
		}
	}
	if off := c.off(); len(off) > 0 {
		fmt.Fprintf(w, "\n%s\n", wrap(aboutOff+": "+strings.Join(off, ", ")+aboutShortOff, 0, helpColumns))
	}
}

// The texts about the options that turn others off.
const (
	aboutOff      = "What was turned on, also by an option that stands for several, is turned off by"
	aboutShortOff = " (or by --no- and the option's letter). The last one counts."
)

// write writes a line or more about the option.
func (o *Option) write(w io.Writer) {
	left := strings.TrimRight("  "+strings.Join(o.Names, ", ")+" "+o.Value, " ")
	text := wrap(o.Text, helpIndentColumns, helpColumns)
	if len(left) > helpIndentColumns-2 {
		fmt.Fprintf(w, "%s\n%*s%s\n", left, helpIndentColumns, "", text)
		return
	}
	fmt.Fprintf(w, "%-*s%s\n", helpIndentColumns, left, text)
}

// wrap breaks text into lines of at most lineColumns. Each line except the first is
// indented.
func wrap(text string, indentColumns, lineColumns int) string {
	var b strings.Builder
	column := indentColumns
	for i, word := range strings.Fields(text) {
		columns := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+columns > lineColumns:
			b.WriteString("\n" + strings.Repeat(" ", indentColumns))
			column = indentColumns
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += columns
	}
	return b.String()
}

// paragraphs yields the paragraphs of a text.
func paragraphs(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for p := range strings.SplitSeq(text, "\n\n") {
			if p = strings.TrimSpace(p); p != "" && !yield(p) {
				return
			}
		}
	}
}
