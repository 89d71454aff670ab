package printable_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"gdrcp/internal/printable"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain text": "plain text", "größe 漢": "größe 漢", "a\nb": `a\nb`, "\x1b[2J": `\x1b[2J`, "\xff": `\xff`, "\uFFFD": "\uFFFD",
		"\u202e": `\u202e`, "é\t": `é\t`, `back\slash "quote"`: `back\slash "quote"`, "\u00a0": `\u00a0`,
	} {
		if got := printable.Text(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// Every result is printable and one line, and a text that already is both is unchanged.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "a\nb", "\x1b[2J\xff", "\u202egpj", "\uFFFD"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := printable.Text(s)
		if !utf8.ValidString(got) || strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
			t.Errorf("%q became %q", s, got)
		}
		if again := printable.Text(got); again != got {
			t.Errorf("%q became %q, and that %q", s, got, again)
		}
	})
}
