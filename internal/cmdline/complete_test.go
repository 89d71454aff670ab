package cmdline

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// completer runs a shell, in a folder with files and with a home of its own,
// that prints, a line each, what it would put in the place of the last word.
type completer struct {
	shell, path, script, dir, home string
}

// newCompleter skips the test where there is no such shell.
func newCompleter(t *testing.T, shell string) *completer {
	t.Helper()
	c := &completer{shell: shell, path: installed(t, shell), script: writeScript(t, shell), dir: t.TempDir(), home: t.TempDir()}
	for path, content := range map[string]string{
		c.dir + "/data/x": "", c.dir + "/draft": "", c.dir + "/down": "", c.dir + "/zeta": "",
		c.home + "/.ssh/config":      "Host node2 node3\n  User me\nHost *.example !x\n",
		c.home + "/.ssh/known_hosts": "nostore,10.0.0.7 ssh-ed25519 AAAA\n|1|abc= ssh-rsa AAAA\nno$(touch\u00a0evil) ssh-rsa AAAA\n@revoked nobody ssh-rsa AAAA\n",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// command is the shell with what it has to run.
func (c *completer) command(ctx context.Context, t *testing.T, words []string) *exec.Cmd {
	t.Helper()
	var args []string
	switch c.shell {
	case "bash":
		run := `source "$1"; shift; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _prog; printf '%s\n' "${COMPREPLY[@]}"`
		args = append([]string{"--norc", "-c", run, "bash", c.script}, words...)
	case "zsh":
		capture, err := filepath.Abs("testdata/capture.zsh")
		if err != nil {
			t.Fatal(err)
		}
		args = []string{"-f", capture, c.script, line(words)}
	case "fish":
		args = []string{"--no-config", "-c", `source $argv[1]; complete -C $argv[2] | string replace -r '\t.*' ''`, c.script, line(words)}
	}
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "HOME="+c.home, "XDG_CONFIG_HOME="+c.home, "TERM=dumb")
	return cmd
}

// line is words as they are typed.
func line(words []string) string {
	typed := make([]string, len(words))
	for i, w := range words {
		typed[i] = strings.ReplaceAll(w, " ", `\ `)
	}
	return strings.Join(typed, " ")
}

// installed skips the test where there is no such shell.
func installed(t *testing.T, shell string) string {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%[1]s is not installed (apt-get install %[1]s)", shell)
	}
	return path
}

// writeScript writes the completion script of the sample.
func writeScript(t *testing.T, shell string) string {
	t.Helper()
	text, err := Completion(sample(), shell)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "script."+shell)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompletion(t *testing.T) {
	recursive := []string{"--recursive"}
	cases := []struct {
		words   string // the last one is completed
		want    []string
		without []string // must not be offered
	}{
		{"prog ", []string{"list", "key", "draft", "data/"}, nil},
		{"prog l", []string{"list"}, []string{"key"}},
		{"prog --r", recursive, []string{"--no-recursive"}},
		{"prog --no", []string{"--no-recursive"}, recursive},
		{"prog -v --wh", []string{"--when"}, recursive},
		{"prog --when ", []string{"now", "later"}, []string{"draft", "list"}},
		{"prog --when l", []string{"later"}, []string{"now", "list"}},
		{"prog --output dr", []string{"draft"}, []string{"down"}},
		{"prog -o dr", []string{"draft"}, []string{"down"}},
		{"prog -ro dr", []string{"draft"}, []string{"down"}},
		{"prog --in-dir d", []string{"data/"}, []string{"draft", "down"}},
		{"prog d", []string{"draft", "down", "data/"}, []string{"zeta"}},
		{"prog no", []string{"node2:", "node3:", "nostore:"}, []string{"no$(touch\u00a0evil):", "*.example:", "@revoked:", "no"}},
		{"prog me@node3", []string{"me@node3:"}, []string{"me@node2:"}},
		{"prog zeta l", nil, []string{"list"}},
		{"prog list ", []string{"up", "down"}, []string{"draft", "list", "key"}},
		{"prog list --", []string{"--in-dir", "--verbose"}, recursive},
		{"prog --in-dir list list u", []string{"up"}, nil},
		{"prog key ", []string{"make-it", "show"}, []string{"draft", "list"}},
		{"prog -v key s", []string{"show"}, []string{"make-it"}},
		{"prog key make-it --ou", []string{"--output"}, nil},
		{"prog key -o draft make-it --ou", []string{"--output"}, nil},
		{"prog key show d", []string{"draft"}, []string{"zeta"}},
		{"prog -- -", nil, []string{"-r", "--recursive"}},
		{"prog -- l", nil, []string{"list"}},
	}
	for _, shell := range Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			completer := newCompleter(t, shell)
			for _, c := range cases {
				got := completer.complete(t, strings.Split(c.words, " "))
				for _, w := range c.want {
					if !slices.Contains(got, w) {
						t.Errorf("%s: %q is not offered, but %q", c.words, w, got)
					}
				}
				for _, w := range c.without {
					if slices.Contains(got, w) {
						t.Errorf("%s: %q is offered, with %q", c.words, w, got)
					}
				}
			}
		})
	}
}

// complete returns what the shell offers for the last word.
func (c *completer) complete(t *testing.T, words []string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.command(ctx, t, words)
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	if err != nil && told.Len() > 0 || strings.Contains(told.String(), "prog") {
		t.Errorf("%v: %s", err, &told)
	}
	found := strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' || c == '\r' })
	for i, f := range found { // bash adds the slash itself when it shows a directory
		if info, err := os.Stat(filepath.Join(c.dir, f)); err == nil && info.IsDir() {
			found[i] = strings.TrimSuffix(f, "/") + "/"
		}
	}
	return found
}

// Bash takes words apart at = and :, unless it was told not to.
func TestBashDividesWords(t *testing.T) {
	bash := newCompleter(t, "bash")
	for _, c := range []struct {
		words []string
		want  []string
	}{
		{[]string{"prog", "--when", "=", "l"}, []string{"later"}},
		{[]string{"prog", "--when", "="}, []string{"now", "later"}},
		{[]string{"prog", "--when=l"}, []string{"--when=later"}},
		{[]string{"prog", "--when", "=", "now", "--ver"}, []string{"--verbose"}},
		{[]string{"prog", "--recursive", "=", "true", "lis"}, []string{"list"}},
		{[]string{"prog", "node2", ":", "dr"}, nil},
		{[]string{"prog", "node2", ":"}, nil},
		{[]string{"prog", "a", ":", "b", "lis"}, nil},
	} {
		if got := bash.complete(t, c.words); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}

func TestScriptsAreWellFormed(t *testing.T) {
	for _, shell := range Shells() {
		t.Run(shell, func(t *testing.T) {
			path := installed(t, shell)
			if out, err := exec.Command(path, "-n", writeScript(t, shell)).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		})
	}
	if _, err := Completion(sample(), "csh"); err == nil {
		t.Error("there is a completion for csh")
	}
}

func TestBrief(t *testing.T) {
	for in, want := range map[string]string{
		"copy directories":                        "copy directories",
		"how; not why":                            "how",
		"a list of things (none), and so on":      "a list of things",
		"-0 is short":                             "-0 is short",
		"print it.":                               "print it",
		"w" + strings.Repeat(" word", 30):         "w" + strings.Repeat(" word", 11) + "…",
		"é" + strings.Repeat("é", briefColumns-1): strings.Repeat("é", briefColumns),
	} {
		if got := brief(in); got != want || utf8.RuneCountInString(got) > briefColumns {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
