package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/cmdline"
)

// completer runs a shell, in a directory with files and with its own home. The shell
// prints, one per line, what it would insert for the last word.
type completer struct {
	shell, path, script, dir, home string
}

// newCompleter skips the test if that shell is missing.
func newCompleter(t *testing.T, shell string) *completer {
	t.Helper()
	path, err := exec.LookPath(shell)
	if err != nil {
		t.Skipf("%[1]s is not installed (apt-get install %[1]s)", shell)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &completer{shell: shell, path: path, dir: t.TempDir(), home: t.TempDir()}
	c.script = c.home + "/script"
	makeFiles(t, c.dir, map[string]string{"data/x": "", "draft": "", "down": "", "zeta": "", "with space": ""})
	makeFiles(t, c.home, map[string]string{
		"script":           gdrcp(t, "completion", shell).want(t, exitOK).out,
		"bin/gdrcp":        "#!/bin/sh\n" + beMain + "=1 exec " + exe + ` "$@"` + "\n",
		".ssh/config":      "Host node2 node3\n  User me\nHost *.example !x\n",
		".ssh/known_hosts": "nostore,10.0.0.7 ssh-ed25519 AAAA\n|1|abc= ssh-rsa AAAA\nno$(touch\u00a0evil) ssh-rsa AAAA\n@revoked nobody ssh-rsa AAAA\n",
	})
	if err := os.Chmod(c.home+"/bin/gdrcp", 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// complete returns the shell's completions for the end of a line.
func (c *completer) complete(t *testing.T, line string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var args []string
	switch c.shell {
	case "bash": // it splits words at = and :, too
		words := strings.Fields(strings.NewReplacer("=", " = ", ":", " : ").Replace(line))
		if strings.HasSuffix(line, " ") {
			words = append(words, "")
		}
		run := `source "$1"; COMP_LINE=$2 COMP_POINT=${#2}; shift 2; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _gdrcp; printf '%s\n' "${COMPREPLY[@]}"`
		args = append([]string{"--norc", "-c", run, "bash", c.script, line}, words...)
	case "zsh":
		capture, err := filepath.Abs("testdata/capture.zsh")
		if err != nil {
			t.Fatal(err)
		}
		args = []string{"-f", capture, c.script, line}
	case "fish":
		args = []string{"--no-config", "-c", `source $argv[1]; complete -C $argv[2] | string replace -r '\t.*' ''`, c.script, line}
	}
	cmd := exec.CommandContext(ctx, c.path, args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "HOME="+c.home, "XDG_CONFIG_HOME="+c.home, "TERM=dumb", "PATH="+c.home+"/bin:"+os.Getenv("PATH"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && stderr.Len() > 0 || strings.Contains(stderr.String(), "gdrcp") {
		t.Errorf("%v: %s", err, &stderr)
	}
	found := strings.FieldsFunc(string(out), func(c rune) bool { return c == '\n' || c == '\r' })
	for i, f := range found { // bash itself adds the slash when it shows a directory
		if info, err := os.Stat(filepath.Join(c.dir, f)); err == nil && info.IsDir() {
			found[i] = strings.TrimSuffix(f, "/") + "/"
		}
	}
	return found
}

func TestCompletion(t *testing.T) {
	cases := []struct {
		line    string // its last word is completed
		want    []string
		without []string // must not be offered
	}{
		{"gdrcp ", []string{"manifest", "serve", "draft", "data/"}, []string{"man-pages", "far-end"}},
		{"gdrcp man", []string{"manifest"}, []string{"serve"}},
		{"gdrcp --rec", []string{"--recursive", "--recheck"}, []string{"--no-recursive", "--imm"}},
		{"gdrcp --no-rec", []string{"--no-recursive"}, []string{"--recursive"}},
		{"gdrcp -v --whole", []string{"--whole-file"}, []string{"--recursive"}},
		{"gdrcp --transport ", []string{"auto", "verbs", "tcp"}, []string{"draft", "serve"}},
		{"gdrcp -r --compress z", []string{"zstd"}, []string{"off"}},
		{"gdrcp --manifest dr", []string{"draft"}, []string{"down"}},
		{"gdrcp -f dr", nil, []string{"serve"}},
		{"gdrcp --partial-dir d", []string{"data/"}, []string{"draft", "down"}},
		{"gdrcp d", []string{"draft", "down", "data/", "devices"}, []string{"zeta"}},
		{"gdrcp no", []string{"node2:", "node3:", "nostore:"}, []string{"no$(touch\u00a0evil):", "*.example:", "@revoked:", "no"}},
		{"gdrcp me@node3", []string{"me@node3:"}, []string{"me@node2:"}},
		{"gdrcp node2:d", nil, []string{"draft", "data/", "devices"}},
		{"gdrcp zeta ser", nil, []string{"serve"}},
		{"gdrcp completion ", []string{"bash", "zsh", "fish"}, []string{"draft"}},
		{"gdrcp serve --read", []string{"--read-only"}, nil},
		{"gdrcp --partial-dir serve serve --read", []string{"--read-only"}, nil},
		{"gdrcp manifest ", []string{"create", "verify"}, []string{"draft", "serve"}},
		{"gdrcp -v manifest cr", []string{"create"}, []string{"verify"}},
		{"gdrcp manifest create --hash b", []string{"blake3"}, nil},
		{"gdrcp manifest -o draft create --ou", []string{"--output"}, nil},
		{"gdrcp manifest show d", []string{"draft"}, []string{"zeta"}},
		{"gdrcp -- -", nil, []string{"-r", "--recursive"}},
		{"gdrcp -- ser", nil, []string{"serve"}},
	}
	for _, shell := range cmdline.Shells() {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			completer := newCompleter(t, shell)
			for _, c := range cases {
				got := completer.complete(t, c.line)
				for _, w := range c.want {
					if !slices.Contains(got, w) {
						t.Errorf("%s: %q is not offered, but %q", c.line, w, got)
					}
				}
				for _, w := range c.without {
					if slices.Contains(got, w) {
						t.Errorf("%s: %q is offered, with %q", c.line, w, got)
					}
				}
			}
			if out, err := exec.Command(completer.path, "-n", completer.script).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		})
	}
	gdrcp(t, "completion").want(t, exitUsage)
	gdrcp(t, "completion", "csh").want(t, exitUsage)
}

// Bash replaces only the part of a word after = or :.
func TestBashDividesWords(t *testing.T) {
	bash := newCompleter(t, "bash")
	for line, want := range map[string][]string{
		"gdrcp --transport=v":                     {"verbs"},
		"gdrcp --transport=":                      {"auto", "tcp", "verbs"},
		"gdrcp --transport=tcp --verb":            {"--verbose"},
		"gdrcp --recursive=true manif":            {"manifest"},
		"gdrcp node2:dr":                          nil,
		"gdrcp a:b manif":                         nil,
		"gdrcp --manifest=dr":                     {"draft"},
		`gdrcp with\ space manif`:                 nil,
		"gdrcp completion b":                      {"bash"},
		"gdrcp --require=gpudirect --transport v": {"verbs"},
	} {
		if got := bash.complete(t, line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
