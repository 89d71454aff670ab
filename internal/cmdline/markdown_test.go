package cmdline

import (
	"strings"
	"testing"
)

// Every text of a program is in its reference, and means itself there.
func TestMarkdown(t *testing.T) {
	text := Markdown(sample(), "Read [this](guide.md) first.")
	for _, want := range []string{
		"# Command line\n\nRead [this](guide.md) first.\n\n",
		"\n## prog\n\n```\nprog [OPTIONS] SRC... DST\n```\n", "\nFirst, see `--when`.\n",
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
}

func TestMarkdownProse(t *testing.T) {
	for in, want := range map[string]string{
		"$A_B _c_ __d":          `$A_B \_c\_ \__d`,
		"--no-x=y, (-o)":        "`--no-x=y`, (`-o`)",
		"well-known - 1 -":      "well-known - 1 -",
		"a*b* <c> [d](e) `f` |": "a\\*b\\* \\<c\\> \\[d\\](e) \\`f\\` \\|",
	} {
		if got := newMarkdown().prose(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// Each row of a table is one line with two cells, whatever its texts hold.
func TestMarkdownTables(t *testing.T) {
	p := sample()
	p.Commands[0].Topics[0].Options[0].Text = "a | b\n| c"
	for line := range strings.Lines(Markdown(p, "")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		if n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|"); n != 3 || !strings.HasSuffix(line, "|\n") {
			t.Errorf("a row has %d bars: %q", n, line)
		}
	}
}
