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
