package packaging

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// opened is a directory that an example opens.
type opened struct {
	root     string
	writable bool
}

// below: what a path names lies in a directory, or is it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// unsafe says what is wrong with directories that are opened together, and files
// with secrets beside them.
func unsafe(all []opened, secrets ...string) (problems []string) {
	for i, a := range all {
		for j, b := range all {
			if i != j && a.writable && below(b.root, a.root) {
				problems = append(problems, b.root+" lies below "+a.root+", which a key may write to")
			}
		}
		for _, file := range secrets {
			if below(file, a.root) {
				problems = append(problems, file+" lies below "+a.root)
			}
		}
	}
	return problems
}

var (
	keyCommand = regexp.MustCompile(`(?m)^#   gdrcp key new .*--access-file (\S+) .*--root (\S+)(.*)$`)
	accessLine = regexp.MustCompile(`(?m)^#\w\S*\s+SECRET\s+(ro|rw)\s+(?:"([^"]*)"|(\S+))`)
	served     = regexp.MustCompile(`(?m)^ExecStart=.* serve --access-file (\S+) --exit-on-gpu-failure$`)
)

// openedBy is what the keys of the unit's commands and of the example access file
// open, and the files with secrets that they name.
func openedBy(unit, example string) (all []opened, secrets []string) {
	for _, m := range keyCommand.FindAllStringSubmatch(unit, -1) {
		all = append(all, opened{m[2], !strings.Contains(m[3], "--read-only")})
		secrets = append(secrets, m[1])
	}
	for _, m := range served.FindAllStringSubmatch(unit, -1) {
		secrets = append(secrets, m[1])
	}
	for _, m := range accessLine.FindAllStringSubmatch(example, -1) {
		all = append(all, opened{m[2] + m[3], m[1] == "rw"})
	}
	return all, secrets
}

// Who does what the unit and the example say, one after the other, has no key whose
// client can change what another opens, and serves no secrets.
func TestExamplesDoNotCombine(t *testing.T) {
	unit, err := os.ReadFile("../../packaging/gdrcp.service")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../../packaging/access.example")
	if err != nil {
		t.Fatal(err)
	}
	all, secrets := openedBy(string(unit), string(example))
	if len(all) != 3 || len(secrets) != 2 {
		t.Fatalf("the examples open %v and have %v", all, secrets)
	}
	for _, problem := range unsafe(all, secrets...) {
		t.Error(problem)
	}
	for _, o := range all {
		if o.writable && !strings.Contains(string(unit), "\nReadWritePaths=-/srv/gdrcp\n") || !below(o.root, "/srv/gdrcp") {
			t.Errorf("the unit does not let %s be written", o.root)
		}
	}
	// It would find what is wrong.
	for _, wrong := range []struct{ text, by, problem string }{
		{"--root /srv/gdrcp/laptop", "--root /srv/gdrcp", "/srv/gdrcp/checkpoints lies below /srv/gdrcp, which a key may write to"},
		{"--root /srv/gdrcp/laptop", "--root /etc --read-only", "/etc/gdrcp/access lies below /etc"},
	} {
		all, secrets := openedBy(strings.Replace(string(unit), wrong.text, wrong.by, 1), string(example))
		if got := strings.Join(unsafe(all, secrets...), "\n"); !strings.Contains(got, wrong.problem) {
			t.Errorf("with %s it finds %q", wrong.by, got)
		}
	}
}
