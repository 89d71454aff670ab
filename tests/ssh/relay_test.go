package ssh

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// relayed returns a client with two hosts, and a tree on the first.
func relayed(t *testing.T, installA, installB func(*testing.T, string)) (here *client, tree string) {
	t.Helper()
	here = newClient(t, newHost(t, "a", installA), newHost(t, "b", installB))
	tree = filepath.Join(t.TempDir(), "tree")
	makeTree(t, tree)
	return here, tree
}

func TestBetweenTwoHosts(t *testing.T) {
	t.Parallel()
	here, tree := relayed(t, program, program)
	there := t.TempDir()
	r := here.run(t, "-r", "-l", "-p", "-t", "a:"+tree, "b:"+there).want(t, 0).says(t, "copied 3 files")
	same(t, tree, filepath.Join(there, "tree"))
	if strings.Contains(r.err, "over ssh") {
		t.Errorf("the data went through ssh: %s", r.err)
	}
	here.run(t, "-q", "a:"+tree+"/deep/*/small", "a:"+tree+"/large", "b:"+there+"/").want(t, 0)
	same(t, tree+"/deep/er/small", there+"/small")
	same(t, tree+"/large", there+"/large")
	// All options are passed on, and the output of the copying end comes back.
	r = here.run(t, "--json", "--hash", "sha256", "a:"+tree+"/large", "b:"+there+"/again").want(t, 0)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	var summary struct {
		Event, Hash string
		Verified    bool
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &summary); err != nil || summary.Event != "summary" || summary.Hash != "sha256" || !summary.Verified {
		t.Errorf("%+v, %v: %s", summary, err, r.out)
	}
}

func TestBetweenTwoHostsThatFail(t *testing.T) {
	t.Parallel()
	here, tree := relayed(t, program, program)
	there := t.TempDir()
	here.run(t, "a:"+tree+"/missing", "b:"+there).want(t, 1).says(t, "missing")
	here.run(t, "a:"+tree, "b:"+there+"/x").want(t, 1).says(t, "-r copies directories")
	here.run(t, "a:"+tree+"/large", "down:"+there).want(t, 1).says(t, "log in to down")
	here.run(t, "stranger-to-a:"+tree+"/large", "b:"+there).want(t, 1).says(t, "log in to stranger-to-a")
	here.run(t, "--manifest", "f", "a:"+tree+"/large", "b:"+there).want(t, 2).says(t, "--manifest")
	nothing(t, there)
}

func TestBetweenTwoHostsThatDoNotReachEachOther(t *testing.T) {
	t.Parallel()
	here, tree := relayed(t, program, cutOff(t))
	there := t.TempDir()
	r := here.run(t, "a:"+tree+"/large", "b:"+there).want(t, 1).says(t, "a does not reach b")
	if lines := r.ours(); len(lines) != 1 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	nothing(t, there)
	if _, err := os.Lstat(filepath.Join(here.dir, "large")); err == nil {
		t.Error("the data came by here")
	}
}
