package cli

import (
	"strings"
	"testing"
)

// A mistyped option is told with the one that was meant, of the same command,
// where there is one that is nearer than all others.
func TestMistypedOptionsSuggestTheNearOne(t *testing.T) {
	for args, want := range map[string]string{
		"--recursve a b":                "unknown option --recursve: did you mean --recursive? (gdrcp --help lists them)",
		"--comrpess=zstd a b":           "unknown option --comrpess: did you mean --compress? (gdrcp --help lists them)",
		"--write-manifset m a b":        "unknown option --write-manifset: did you mean --write-manifest? (gdrcp --help lists them)",
		"--delete_excluded a b":         "unknown option --delete_excluded: did you mean --delete-excluded? (gdrcp --help lists them)",
		"serve --rot x":                 "unknown option --rot of gdrcp serve: did you mean --root? (gdrcp serve --help lists them)",
		"manifest create --hahs=xxh3 .": "unknown option --hahs of gdrcp manifest create: did you mean --hash? (gdrcp manifest create --help lists them)",
		"--no-prems a b":                "unknown option --no-prems: did you mean --no-perms? (gdrcp --help lists them)",
		// Nothing is near, or it is of another command, hidden, or one of several.
		"--nonsense a b": "unknown option --nonsense (gdrcp --help lists them)",
		"--rooot x a b":  "unknown option --rooot (gdrcp --help lists them)",
		"--im a b":       "unknown option --im (gdrcp --help lists them)",
		"--imn=send a b": "unknown option --imn (gdrcp --help lists them)",
		"--" + strings.Repeat("x", 1000) + " a b": "unknown option --" + strings.Repeat("x", 1000) + " (gdrcp --help lists them)",
	} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage)
		if r.err != "gdrcp: "+want+"\n" {
			t.Errorf("gdrcp %s wrote\n%swant\n%s", args, r.err, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "ba", 1}, {"root", "rot", 1}, {"qps", "gpu", 2}, {"abcd", "acbd", 1}, {"kitten", "sitting", 3}} {
		if d, back := distance(c.a, c.b), distance(c.b, c.a); d != c.want || back != c.want {
			t.Errorf("from %q to %q: %d and %d, want %d", c.a, c.b, d, back, c.want)
		}
	}
}
