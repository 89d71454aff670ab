package cmdline

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// sample returns a program whose texts contain all characters that are special in roff,
// Markdown and shells.
func sample() *Program {
	verbose := Option{Names: []string{"-v", "--verbose"}, Text: "tell more"}
	output := Option{Names: []string{"-o", "--output"}, Value: "FILE|-", Text: ".hidden files count"}
	inDir := Option{Names: []string{"--in-dir"}, Value: "DIR", Text: "a directory"}
	return &Program{
		Version: "1.2", Date: "2026-01-02", AboutOptions: "Short ones can be joined.",
		All: []Command{
			{
				Title: "prog", Summary: "do things", Operands: "[OPTIONS] SRC... DST", Description: "First, see --when.\n\n.TH of 'this' \\fB is \"no\" macro, nor is\n.br or ~ ^ ` or é.",
				Topics: []Topic{
					{"What", []Option{
						{Names: []string{"-r", "--recursive"}, Off: "--no-recursive", Text: "all [of] it: $HOME 'quoted' \"twice\" `no` \\n", Brief: "all of it"},
						{Names: []string{"--when"}, Value: "now|later", Text: "now, the default, or later", More: "Now is soon, and --when is | at hand."},
					}},
					{"How", []Option{output, {Names: []string{"-0", "--from0"}, Text: "-0 is short"}, inDir, verbose}},
				},
				Examples: []Item{{`prog --when now 'a b' \x .c`, "Do it:"}, {"prog a b", "Do that:"}, {"prog c d", "Do more:"}},
				Sections: []Section{{"Places", "Where things go.", []Item{{"A B", "Into <B>"}}}, {"Files", "", []Item{{"~/.prog*", "what is kept"}}}},
			},
			{Title: "prog list", Summary: "list things", Operands: "up|down", Description: "Lists.", Topics: []Topic{{"How", []Option{inDir, verbose}}}},
			{Title: "prog key", Summary: "keys", Operands: "make-it|show ...", Description: "Keys.", Commands: []Command{
				{Title: "prog key make-it", Summary: "make one", Operands: "[OPTIONS] ID", Description: "Makes.", Topics: []Topic{{"How", []Option{output}}}},
				{Title: "prog key show", Summary: "show one", Operands: "MANIFEST", Description: "Shows.", Topics: []Topic{{"How", []Option{verbose}}}},
			}},
		},
		Environment: []Item{{"PROG_X, PROG_Y", "variables"}},
		ExitCodes:   []Item{{"0", "ok"}, {"3", "not all of it"}},
	}
}

// A manual page shows its texts unchanged, whatever characters they contain.
func TestPagesAsTheyAreRead(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed (apt-get install groff)")
	}
	pages, err := Pages(sample())
	if err != nil || len(pages) != 3 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for name, want := range map[string][]string{
		"prog.1": {
			"prog - do things", "prog [OPTIONS] SRC... DST", `.TH of 'this' \fB is "no" macro, nor is .br or ~ ^ ` + "` or é.", "   What\n", "-r, --recursive",
			`All [of] it: $HOME 'quoted' "twice" ` + "`no` \\n.", "--when now|later", "now, the default, or later. Now is soon, and --when is | at hand.",
			"Where things go.", "A B    Into <B>", "\nFiles\n", "~/.prog*", "what is kept", "-o, --output FILE|-", ".hidden files count.", "-0, --from0", "-0 is short.",
			"is turned off by --no-recursive (or", `prog --when now 'a b' \x .c`, "PROG_X, PROG_Y", "not all of it", "prog-list(1), prog-key(1)", "gdrcp 1.2", "2026-01-02",
		},
		"prog-list.1": {"prog-list - list things", "prog list up|down", "prog(1), prog-key(1)"},
		"prog-key.1":  {"prog key make-it [OPTIONS] ID\n", "prog key show MANIFEST\n", "-o, --output FILE"},
	} {
		cmd := exec.Command(groff, "-ww", "-man", "-Kutf8", "-Tutf8", "-P-cbou", "-rLL=200n")
		cmd.Stdin = strings.NewReader(string(pages[name]))
		var warnings strings.Builder
		cmd.Stderr = &warnings
		out, err := cmd.Output()
		if err != nil || warnings.Len() > 0 {
			t.Errorf("groff -ww on %s: %v\n%s", name, err, &warnings)
		}
		text := strings.NewReplacer("\u2010", "-", "\u2212", "-", "\u2019", "'", "\u2018", "`", "\u02c6", "^", "\u02dc", "~").Replace(string(out))
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s lacks %q:\n%s", name, w, text)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	p := sample()
	show := func(c Command, all bool) string {
		var b strings.Builder
		if err := Help(&b, p, c, all); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	short, long := show(p.All[0], false), show(p.All[0], true)
	if !strings.HasPrefix(short, "Examples:\n  prog --when now 'a b' \\x .c\n      Do it\n  prog a b\n      Do that\n\nUsage: prog [OPTIONS] SRC... DST\n") {
		t.Errorf("it does not begin with two examples:\n%s", short)
	}
	if !strings.Contains(short, "  -r, --recursive             all of it\n") || strings.Contains(short, "--when now|") || strings.Contains(short, "not all of it") {
		t.Errorf("the short help is\n%s", short)
	}
	for _, want := range []string{
		"       prog list up|down\n", "\nWhat:\n  -r, --recursive             all [of]", "  --when now|later            now, the default", "\n--no-recursive (or", "  3                           not all of it\n",
	} {
		if !strings.Contains(long, want) {
			t.Errorf("help lacks %q:\n%s", want, long)
		}
	}
	if strings.Contains(long, "at hand") || strings.Contains(long, "Where things go") {
		t.Errorf("help has what is for manuals:\n%s", long)
	}
	if key := show(p.All[2], false); !strings.Contains(key, "\nprog key make-it [OPTIONS] ID\n    Makes.\n") || !strings.Contains(key, "prog key make-it --help, and so on") {
		t.Errorf("help of key:\n%s", key)
	}
}

// Every text of a program is in its reference, with its meaning unchanged.
func TestMarkdown(t *testing.T) {
	var b strings.Builder
	if err := Markdown(&b, sample(), "Read [this](guide.md) first."); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"# Command line\n\nRead [this](guide.md) first.\n\n", "\n## prog\n\n```\nprog [OPTIONS] SRC... DST\n```\n", "\nFirst, see `--when`.\n",
		"| What | |\n|---|---|\n| `-r, --recursive` | All \\[of\\] it: $HOME 'quoted' \"twice\" \\`no\\` \\\\n. |\n",
		"| `--when now\\|later` | now, the default, or later. Now is soon, and `--when` is \\| at hand. |\n",
		"turned off by `--no-recursive` (or", "\n### Places\n\nWhere things go.\n\n| | |\n|---|---|\n| `A B` | Into \\<B\\> |\n",
		"\n### Files\n\n| | |\n|---|---|\n| `~/.prog*` | what is kept |\n", "\nDo it:\n\n```\nprog --when now 'a b' \\x .c\n```\n",
		"\n## prog key\n\nKeys.\n\n### prog key make-it\n\n```\nprog key make-it [OPTIONS] ID\n```\n",
		"| code | |\n|---|---|\n| `0` | ok |\n| `3` | not all of it |\n", "| `PROG_X, PROG_Y` | variables |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the reference lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "1.2") || strings.Contains(text, "2026") {
		t.Errorf("the reference names a version:\n%s", text)
	}
	for line := range strings.Lines(text) { // a row has two cells, whatever its texts contain
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); strings.HasPrefix(line, "|") && n != 3 {
			t.Errorf("a row has %d bars: %q", n, line)
		}
	}
}

func TestComplete(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for words, want := range map[string]string{
		"": "files key list", "l": "files list", "--r": "none --recursive", "--no": "none --no-recursive", "-v --re": "none --recursive", "--when ": "none later now",
		"--when l": "none later", "--when=l": "none --when=later", "--output dr": "files", "-o dr": "files", "-ro dr": "files", "-or l": "files list", "--in-dir d": "directories",
		"zeta l": "files", "list ": "none down up", "list --v": "none --verbose", "--in-dir list list u": "none up", "key ": "none make-it show", "-v key s": "none show",
		"key make-it --ou": "none --output", "key -o draft make-it --ou": "none --output", "-- -": "files", "-- l": "files", "node2:d": "none", "--nonsense l": "files list",
	} {
		from, found := Complete(sample(), strings.Split(words, " "))
		got := from
		for _, c := range found {
			got += " " + c.Term
		}
		if got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
	for _, shell := range Shells() {
		if script, err := Script(shell); err != nil || !slices.Contains(strings.Fields(string(script)), "words") {
			t.Errorf("the script for %s: %v", shell, err)
		}
	}
}
