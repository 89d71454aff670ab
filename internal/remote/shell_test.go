package remote

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestSplitCommand(t *testing.T) {
	for _, c := range []struct {
		given string
		want  []string
	}{
		{"ssh", []string{"ssh"}},
		{"  ssh   -p 22 ", []string{"ssh", "-p", "22"}},
		{`ssh -o 'ProxyCommand nc %h 1'`, []string{"ssh", "-o", "ProxyCommand nc %h 1"}},
		{`ssh -F "/a b/c'd"`, []string{"ssh", "-F", "/a b/c'd"}},
		{`ssh -F '/it''s' ""`, []string{"ssh", "-F", "/it's", ""}},
		{`ssh -F a"b "'c ' `, []string{"ssh", "-F", "ab c "}},
		{`s\h a\ b`, []string{`s\h`, `a\`, "b"}},
		{"ssh\t-p", []string{"ssh\t-p"}},
	} {
		got, err := SplitCommand(c.given)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.given, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "   ", `ssh "a`, `ssh 'a`, `""`} {
		if got, err := SplitCommand(bad); err == nil {
			t.Errorf("%q was taken as %q", bad, got)
		}
	}
}

func FuzzSplitCommand(f *testing.F) {
	f.Add(`ssh -o 'a b' "c""d" e`)
	f.Fuzz(func(t *testing.T, s string) {
		words, err := SplitCommand(s)
		if err == nil && (len(words) == 0 || words[0] == "") {
			t.Fatalf("%q: %q", s, words)
		}
		if plain := strings.Fields(s); err == nil && !strings.ContainsAny(s, "'\"\t\n\v\f\r\u0085\u00a0\u2000") && isASCII(s) && !slices.Equal(words, plain) {
			t.Fatalf("%q: %q, want %q", s, words, plain)
		}
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > 126 })
}

func TestCheckHost(t *testing.T) {
	for _, c := range []struct {
		user, host string
		ok         bool
	}{
		{"", "node2", true}, {"me", "node2", true}, {"", "::1", true},
		{"", "-oProxyCommand=x", false}, {"-l", "node2", false}, {"", "", false}, {"", "a b", false}, {"a\nb", "c", false},
		{`DOMAIN\me`, "node2", true}, {"me$", "fe80::1%eth0", true}, {"", "$(id)", false}, {"", "a;id", false}, {"", "`id`", false}, {"", "a|id", false},
		{"", `a\b`, false}, {"me;id", "node2", false}, {"`id`", "node2", false}, {"", "a&", false}, {"", "a>b", false}, {"'", "a", false}, {"", "{a,b}", false},
	} {
		if err := CheckHost(c.user, c.host); (err == nil) != c.ok {
			t.Errorf("%q@%q: %v", c.user, c.host, err)
		}
	}
}

// TestScriptsSurviveAnyShell: no single quote, backslash, newline or
// exclamation mark, which shells treat differently.
func TestScriptsSurviveAnyShell(t *testing.T) {
	for _, script := range []string{scriptStart, scriptStore} {
		if i := strings.IndexAny(script, "'\\\n!"); i >= 0 {
			t.Errorf("script has %q: %s", script[i], script)
		}
		if out, err := exec.Command("sh", "-n", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, script)
		}
	}
}
