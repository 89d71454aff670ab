package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// exitCodesText explains the exit codes.
const exitCodesText = `Exit codes:
  0    ok
  1    error: it did not come to its end, or what it had to tell could not be written
  2    usage: the command line makes no sense
  3    some files were not copied, or not read: unreadable, not writable, or changed while they were read
  4    integrity: something did not match its digest or the manifest, a manifest is damaged, or manifests differ
  5    not supported here: no RDMA device, or not one that can do it
  130  interrupted (serve ends with 0 then)
`

// writeHelp writes what there is to know of a command.
func writeHelp(w io.Writer, app *cli.App, line *ordered) {
	c := line.command
	if line.title == "" {
		fmt.Fprint(w, "gdrcp copies files and directory trees between hosts over RDMA or TCP and verifies every piece.\n\n")
	}
	fmt.Fprintf(w, "Usage: %s\n", strings.Join(strings.Fields("gdrcp "+line.title+" "+c.ArgsUsage), " "))
	if line.title == "" {
		for _, other := range visible(app.Commands) {
			fmt.Fprintf(w, "       gdrcp %s %s\n", other.Name, other.ArgsUsage)
		}
	}
	if c.Description != "" {
		fmt.Fprintf(w, "\n%s\n", c.Description)
	}
	for _, sub := range c.Subcommands {
		fmt.Fprintf(w, "\ngdrcp %s %s %s\n    %s\n", line.title, sub.Name, sub.ArgsUsage, strings.ReplaceAll(sub.Description, "\n", "\n    "))
	}
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(w, "\nThe options of each: gdrcp %s %s --help, and so on.\n", line.title, c.Subcommands[0].Name)
	}
	if len(c.Subcommands) == 0 {
		writeOptions(w, append(c.Flags, helpFlag()))
	}
	fmt.Fprintf(w, "\n%s", exitCodesText)
}

// helpFlag is the option that every command has.
func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: helpName, Aliases: []string{"h"}, Usage: "this text", Category: topicOutput}
}

// writeOptions writes what there is to know of options, by topic.
func writeOptions(w io.Writer, flags []cli.Flag) {
	fmt.Fprint(w, "\nOptions, anywhere among the operands (-- ends them):\n")
	var off []string
	for _, topic := range topics() {
		started := false
		for _, f := range flags {
			o, ok := describe(f)
			if !ok || o.topic != topic {
				continue
			}
			if !started {
				fmt.Fprintf(w, "\n%s:\n", topic)
				started = true
			}
			o.write(w)
			if negatable(f) {
				off = append(off, "--no-"+f.Names()[0])
			}
		}
	}
	if len(off) > 0 {
		fmt.Fprintf(w, "\n%s\n", wrap("What was turned on, also by an option that stands for several, is turned off by: "+strings.Join(off, ", ")+
			" (or by --no- and the option's letter). The last one counts.", 0))
	}
}

// described is an option for people.
type described struct {
	names []string // with dashes, the short one first
	value string   // what its value is called; "" if it has none
	text  string
	topic string
}

// describe returns what there is to know of an option that is not hidden. What
// its usage has in back quotes is its value; at the beginning, it is not part
// of the text.
func describe(f cli.Flag) (described, bool) {
	doc, ok := f.(cli.DocGenerationFlag)
	if hidden, canHide := f.(cli.VisibleFlag); !ok || canHide && !hidden.IsVisible() {
		return described{}, false
	}
	d := described{text: doc.GetUsage()}
	for _, n := range f.Names() {
		d.names = append(d.names, dashed(n))
	}
	slices.SortStableFunc(d.names, func(a, b string) int { return min(len(a), 3) - min(len(b), 3) })
	if c, ok := f.(cli.CategorizableFlag); ok {
		d.topic = c.GetCategory()
	}
	if before, rest, found := strings.Cut(d.text, "`"); found {
		value, after, _ := strings.Cut(rest, "`")
		d.value, d.text = value, before+value+after
		if before == "" {
			d.text = strings.TrimSpace(after)
		}
	}
	return d, true
}

const (
	helpIndentColumns = 28  // before what is told of an option
	helpColumns       = 110 // of a line of help
)

// write writes a line or more about the option.
func (d *described) write(w io.Writer) {
	left := strings.TrimRight("  "+strings.Join(d.names, ", ")+" "+d.value, " ")
	text := wrap(d.text, helpIndentColumns)
	if len(left) > helpIndentColumns-2 {
		fmt.Fprintf(w, "%s\n%*s%s\n", left, helpIndentColumns, "", text)
		return
	}
	fmt.Fprintf(w, "%-*s%s\n", helpIndentColumns, left, text)
}

// wrap breaks text into lines, each but the first after an indent.
func wrap(text string, indentColumns int) string {
	var b strings.Builder
	column := indentColumns
	for i, word := range strings.Fields(text) {
		columns := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+columns > helpColumns:
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
