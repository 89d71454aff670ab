package cmdline

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sample is a program whose texts have all that roff and shells take for
// something else.
func sample() *Program {
	verbose := Option{Names: []string{"-v", "--verbose"}, Text: "tell more"}
	return &Program{
		Name: "prog", Version: "1.2", Date: "2026-01-02", Summary: "does things",
		Commands: []Command{
			{
				Summary: "do things", Operands: "[OPTIONS] SRC... DST", Description: "First, see --when.\n\n.TH of 'this' \\fB is \"no\" macro, nor is\n.br or ~ ^ ` or é.",
				Topics: []Topic{
					{"What", []Option{
						{Names: []string{"-r", "--recursive"}, Off: []string{"--no-recursive", "--no-r"}, Text: "all [of] it: $HOME 'quoted' \"twice\" `no` \\n"},
						{Names: []string{"--when"}, Value: "now|later", Text: "now, the default, or later", More: "Now is soon, and --when is | at hand."},
					}},
					{"How", []Option{
						{Names: []string{"-o", "--output"}, Value: "FILE|-", Text: ".hidden files count"},
						{Names: []string{"-0", "--from0"}, Text: "-0 is short"},
						{Names: []string{"--in-dir"}, Value: "DIR", Text: "a directory"},
						verbose,
					}},
				},
				Examples: []Example{{"Do it:", `prog --when now 'a b' \x .c`}},
				Sections: []Section{{"Places", "Where things go.", []Item{{"A B", "Into <B>"}}}},
				Files:    []Item{{"~/.prog*", "what is kept"}},
			},
			{Words: []string{"list"}, Summary: "list things", Operands: "--in-dir DIR [OPTIONS] up|down", Description: "Lists.", Topics: []Topic{{"How", []Option{
				{Names: []string{"--in-dir"}, Value: "DIR", Text: "a directory"}, verbose}}}},
			{Words: []string{"key"}, Summary: "keys", Operands: "make-it|show ...", Description: "Keys.", Commands: []Command{
				{Words: []string{"key", "make-it"}, Summary: "make one", Operands: "[OPTIONS] ID", Description: "Makes.", Topics: []Topic{{"How", []Option{
					{Names: []string{"-o", "--output"}, Value: "FILE", Text: "where"}}}}},
				{Words: []string{"key", "show"}, Summary: "show one", Operands: "[-o FILE] MANIFEST", Description: "Shows.", Topics: []Topic{{"How", []Option{verbose}}}},
			}},
		},
		Environment: []Variable{{[]string{"PROG_X", "PROG_Y"}, "variables"}},
		ExitCodes:   []ExitCode{{0, "ok"}, {3, "not all of it"}},
	}
}

func TestEscape(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"plain text", "plain text"},
		{"well-known", "well-known"},
		{"--no-x and (-o) or -rf", `\-\-no\-x and (\-o) or \-rf`},
		{"a/b-c d_e-f g.h-i.", `a/b\-c d_e\-f g.h\-i.`},
		{"read-only.", "read-only."},
		{`back\slash`, `back\eslash`},
		{`"it's" ` + "`~^", `\(dqit\(aqs\(dq \(ga\(ti\(ha`},
		{"µ é", `\[u00B5] \[u00E9]`},
		{"a\x00b\x1bc\n", "a?b?c?"},
	} {
		if got := escape(c.in); got != c.out {
			t.Errorf("%q became %q, want %q", c.in, got, c.out)
		}
	}
}

// No text can begin a line in a way that makes a request of it.
func TestTextMakesNoRequest(t *testing.T) {
	r := newRoff()
	r.prose(strings.Repeat(".br ", 60))
	r.prose("'so /etc/passwd")
	r.raw(literal("'x\n.y"))
	for line := range strings.Lines(r.b.String()) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			t.Errorf("a line is %q", line)
		}
	}
}

// render shows a page as a terminal has it.
func render(t *testing.T, page Page) string {
	t.Helper()
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed (apt-get install groff)")
	}
	cmd := exec.Command(groff, "-ww", "-man", "-Tutf8", "-P-cbou", "-rLL=200n")
	cmd.Stdin = strings.NewReader(page.Text)
	var warnings strings.Builder
	cmd.Stderr = &warnings
	text, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Errorf("groff -ww on %s: %v\n%s", page.Name, err, &warnings)
	}
	return string(text)
}

// What is read of a page is what was written, whatever characters it has.
func TestPagesAsTheyAreRead(t *testing.T) {
	pages := Pages(sample())
	for i, want := range [][]string{
		{
			"prog - do things", "prog [OPTIONS] SRC... DST", `.TH of 'this' \fB is "no" macro, nor is .br or ~ ^ ` + "` or é.",
			"prog key", "Keys.  See prog-key(1).", "   What\n", "-r, --recursive", `All [of] it: $HOME 'quoted' "twice" ` + "`no` \\n.", "--when now|later", "now, the default, or later. Now is soon, and --when is | at hand.",
			"\nPLACES\n", "Where things go.", "A B    Into <B>.", "\nFILES\n", "~/.prog*", "What is kept.",
			"-o, --output FILE|-", ".hidden files count.", "-0, --from0", "-0 is short.", "is turned off by --no-recursive (or",
			`prog --when now 'a b' \x .c`, "PROG_X, PROG_Y", "Not all of it.", "prog-key(1), prog-list(1)", "prog 1.2", "2026-01-02",
		},
		{"prog-list - list things", "prog list --in-dir DIR [OPTIONS] up|down", "prog(1), prog-key(1)"},
		{"prog key make-it [OPTIONS] ID\n", "prog key show [-o FILE] MANIFEST\n", "KEY MAKE-IT\n", "-o, --output FILE"},
	} {
		text := render(t, pages[i])
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", pages[i].Name, w, text)
			}
		}
	}
	if len(pages) != 3 || pages[2].Name != "prog-key.1" {
		t.Errorf("%d pages", len(pages))
	}
}

// Hyphens of options are minus signs, which can be copied and searched for.
func TestOptionsHaveMinusSigns(t *testing.T) {
	for _, page := range Pages(sample()) {
		for line := range strings.Lines(page.Text) {
			if strings.Contains(line, "--") || strings.Contains(line, `\fB-`) || strings.Contains(line, " -") {
				t.Errorf("%s has %q", page.Name, line)
			}
		}
	}
}

func TestMandoc(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("mandoc is not installed (apt-get install mandoc)")
	}
	for _, page := range Pages(sample()) {
		cmd := exec.Command(mandoc, "-Tlint", "-Wwarning")
		cmd.Stdin = strings.NewReader(page.Text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", page.Name, err, out)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name string
		want string
	}{
		{"FILE", "[] 1"}, {"FILE|-", "[] 1"}, {"N|auto|off", "[auto off] 0"}, {"DEV|ADDR", "[] 3"}, {"xxh3|crc32c", "[xxh3 crc32c] 0"}, {"SIZE", "[] 0"},
		{"rdma://host[:port]", "[] 0"}, {"verbs", "[verbs] 0"}, {"DIR", "[] 2"},
	} {
		got := candidatesFor(c.name)
		if text := fmt.Sprint(got.words, " ", int(got.from)); text != c.want {
			t.Errorf("%s: %s, want %s", c.name, text, c.want)
		}
	}
	for operands, want := range map[string]string{
		"[OPTIONS] SRC... DST": "[] 4", "--root DIR [OPTIONS]": "[] 0", "[--access-file FILE]": "[] 0", "[-o FILE] MANIFEST PATH": "[] 1", "bash|zsh|fish": "[bash zsh fish] 0",
		"[-v] DIR...": "[] 2", "--access-file FILE|--root DIR --key-file FILE [OPTIONS]": "[] 0", "FILE|- DIR": "[] 2",
	} {
		c := Command{Operands: operands}
		got := c.operands()
		if text := fmt.Sprint(got.words, " ", int(got.from)); text != want {
			t.Errorf("%s: %s, want %s", operands, text, want)
		}
	}
}

func TestHelp(t *testing.T) {
	p := sample()
	var b strings.Builder
	Help(&b, p, &p.Commands[0])
	for _, want := range []string{
		"prog does things.\n", "Usage: prog [OPTIONS] SRC... DST\n       prog list --in-dir DIR [OPTIONS] up|down\n", "\nWhat:\n  -r, --recursive           all",
		"  --when now|later          now, the default", "turned off by: --no-recursive (or", "  3    not all of it\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("help lacks %q:\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "at hand") || strings.Contains(b.String(), "Where things go") {
		t.Errorf("help has what is for manuals:\n%s", &b)
	}
	b.Reset()
	Help(&b, p, &p.Commands[2])
	if !strings.Contains(b.String(), "\nprog key make-it [OPTIONS] ID\n    Makes.\n") || !strings.Contains(b.String(), "prog key make-it --help, and so on") {
		t.Errorf("help of key:\n%s", &b)
	}
}

func TestPageNames(t *testing.T) {
	for _, page := range Pages(sample()) {
		if filepath.Base(page.Name) != page.Name || !strings.HasSuffix(page.Name, ".1") {
			t.Errorf("a page is called %q", page.Name)
		}
	}
}
