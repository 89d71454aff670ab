package program

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTreeThatWasNotMeant: a directory that no --atomic-dir made, and whose top has
// other names than the source, is replaced only with --force-replace. What is lost with
// it is listed and counted, and --max-delete limits it.
func TestTreeThatWasNotMeant(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 6, 1)
		write(t, to+"/datax/precious/one", "1")
		write(t, to+"/datax/precious/two", "2")
		write(t, to+"/datax/three", "3")
		log := t.TempDir() + "/log"
		copyIt := func(args ...string) *process {
			t.Helper()
			p := s.copy(t, append(append(s.operands(d, s.via(), "tree", "datax"), "-a", "--atomic-dir"), args...)...)
			if d.push {
				awaitUnlocked(t, to)
			}
			return p
		}
		untouched := func(p *process) {
			t.Helper()
			for _, name := range []string{"precious/one", "precious/two", "three"} {
				if _, err := os.Lstat(to + "/datax/" + name); err != nil {
					t.Fatalf("%v: %s", err, p)
				}
			}
		}
		for _, args := range [][]string{nil, {"-n"}} {
			p := copyIt(args...)
			p.wantFailure(1, `(precious|three)": the source does not have it, and --atomic-dir did not make this directory; --force-replace`)
			untouched(p)
		}
		p := copyIt("--force-replace", "--max-delete", "3").wantCode(3)
		p.wantOne(strings.Split(p.stderr.String(), "\n"), `--max-delete allows 3, and the directory that is replaced has at least 4 `)
		untouched(p)
		dry := copyIt("--force-replace", "-n").wantCode(0)
		untouched(dry)
		lost := []string{"precious/one", "precious/two", "precious/", "three"}
		for _, name := range lost {
			dry.wantOne(strings.Split(dry.stdout.String()+dry.stderr.String(), "\n"), `^deleting `+name+`$`)
		}
		p = copyIt("--force-replace", "--json", "--max-delete", "4", "--log-file", log).wantCode(0)
		p.wantSummary(map[string]any{"deleted": 4.0, "verified": true})
		listed := 0
		for _, e := range p.events() {
			if e["event"] == "deleted" {
				listed++
			}
		}
		text, err := os.ReadFile(log)
		must(t, err)
		if n := strings.Count(string(text), "] deleted "); listed != 4 || n != 4 {
			t.Errorf("%d events, %d lines of the log: %s\n%s", listed, n, p, text)
		}
		sameTree(t, from+"/tree", to+"/datax", true)
		// A tree that a copy made is replaced without --force-replace.
		write(t, to+"/datax/four", "4")
		p = copyIt("-v", "--stats").wantCode(0)
		p.wantOne(strings.Split(p.stdout.String()+p.stderr.String(), "\n"), `^deleting four$`)
		p.wantOne(strings.Split(p.stdout.String()+p.stderr.String(), "\n"), `deleted files: 1$`)
		sameTree(t, from+"/tree", to+"/datax", true)
		noTreesLeft(t, to)
		s.stop()
	})
}

// TestTreeGetsLateNames: entries that others create in the replaced directory, below
// its top and after it was examined, are neither lost nor listed as lost.
func TestTreeGetsLateNames(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/tree/big", 32*mib, 1)
		write(t, from+"/tree/d/f", "new")
		write(t, to+"/tree/d/gone", "g")
		write(t, to+"/tree/big", "old")
		client := start(t, s.as, append(s.copyArgs(), append(s.operands(d, s.slowDown(t), "tree", "tree"), "-a", "--atomic-dir", "--json")...)...)
		awaitBytes(to, 8*mib, client)
		write(t, to+"/tree/d/precious", "p")
		client.wantCode(3)
		client.wantOne(strings.Split(client.stdout.String(), "\n"), `others put names into it after it was listed \(1\); they are kept beside it in .{1,2}gdrcp-kept-`)
		var listed []string
		for _, e := range client.events() {
			if e["event"] == "deleted" {
				listed = append(listed, e["path"].(string))
			}
		}
		if len(listed) != 1 || listed[0] != "d/gone" {
			t.Errorf("listed as deleted: %q", listed)
		}
		sameTree(t, from+"/tree", to+"/tree", false)
		kept, _ := filepath.Glob(to + "/gdrcp-kept-*/d/*")
		if len(kept) != 1 || filepath.Base(kept[0]) != "precious" {
			t.Errorf("kept: %q", kept)
		}
		s.stop()
	})
}
