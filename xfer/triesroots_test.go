package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// rootsCopy is a copy of a tree whose connection is lost when half of its files have ended.
type rootsCopy struct {
	push   bool
	o      xfer.Options
	listed bool // --files-from, to a directory that the copy makes

	top, src, dst    string // top is the local directory that src or dst is in
	ep, other        xfer.Endpoint
	otherRoot        string // that other serves
	afresh           int    // how often the copy reported that it starts afresh
	wasLost, mayLose bool
}

const rootsFiles = 10

// TestLaterAttemptLooksAgain: what an earlier attempt settled counts only if it still exists, in
// the same directories at both ends.
func TestLaterAttemptLooksAgain(t *testing.T) {
	times := xfer.Options{Times: true}
	nothing := func(*testing.T, *rootsCopy) {}
	for name, c := range map[string]struct {
		rootsCopy
		between     func(t *testing.T, c *rootsCopy)
		wantAfresh  int
		wantDeleted int64
		noRoot      bool // over all attempts
	}{
		"push, nothing changed":      {rootsCopy: rootsCopy{push: true, o: times}, between: nothing},
		"push, by a list":            {rootsCopy: rootsCopy{push: true, o: times, listed: true}, between: nothing},
		"push, another root":         {rootsCopy: rootsCopy{push: true, o: times}, between: toOtherRoot, wantAfresh: 1},
		"push, another root, delete": {rootsCopy: rootsCopy{push: true, o: xfer.Options{Times: true, Delete: true}}, between: toOtherRoot, wantAfresh: 1, wantDeleted: 1},
		"push, removed destination": {rootsCopy: rootsCopy{push: true, o: times}, noRoot: true, between: func(t *testing.T, c *rootsCopy) {
			check(t, os.RemoveAll(c.dst))
		}},
		"push, another source": {rootsCopy: rootsCopy{push: true, o: times}, wantAfresh: 1, between: func(t *testing.T, c *rootsCopy) {
			check(t, os.Rename(c.src, c.src+".away"))
			rootsTree(t, c.src, "B")
		}},
		"push without times, changed file": {rootsCopy: rootsCopy{push: true}, between: changeFile, noRoot: true},
		"pull, changed file":               {rootsCopy: rootsCopy{o: times}, between: changeFile, noRoot: true},
		"pull, another root":               {rootsCopy: rootsCopy{o: times}, between: toOtherRoot, wantAfresh: 1},
		"pull, compared, another directory": {rootsCopy: rootsCopy{o: xfer.Options{Checksum: true}}, wantAfresh: 1, between: func(t *testing.T, c *rootsCopy) {
			check(t, os.Rename(c.top, c.top+".away"))
			check(t, os.Mkdir(c.top, 0o755))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			copyIt := c.begin(t)
			if _, err := copyIt(); err == nil || !c.o.Tries.MayGoOn(err) || !c.wasLost {
				t.Fatalf("the first attempt: %v", err)
			}
			c.mayLose = false
			c.between(t, &c.rootsCopy)
			c.o.Tries.Again(c.o.Tally)
			sum, err := copyIt()
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, c.src, c.dst)
			if sum.Files != rootsFiles || sum.Links != 1 || sum.Unchanged+sum.Kept+sum.Failed != 0 || sum.Deleted != c.wantDeleted || !sum.Verified || c.afresh != c.wantAfresh {
				t.Errorf("it started afresh %d times, want %d, and deleted %d, want %d: %+v", c.afresh, c.wantAfresh, sum.Deleted, c.wantDeleted, sum)
			}
			if has := sum.Content != [32]byte{}; has == c.noRoot {
				t.Errorf("root %x, want none: %v", sum.Content, c.noRoot)
			}
		})
	}
}

// begin makes the source and two servers, and returns one attempt of the copy.
func (c *rootsCopy) begin(t *testing.T) func() (*xfer.Summary, error) {
	w := tcpWay(t)
	s := serve(t, w)
	c.otherRoot = t.TempDir()
	other := serve(t, w, func(cfg *xfer.ServerConfig) {
		cfg.Keys = xfer.OneKey(s.ep.Key, xfer.Admission{Root: xfer.DirRoot(c.otherRoot)})
	})
	c.ep, c.other = s.ep, other.ep
	c.other.Key = s.ep.Key
	c.top = filepath.Join(t.TempDir(), "top")
	c.src, c.dst = filepath.Join(c.top, "src"), filepath.Join(s.root, "copy")
	if !c.push {
		c.src, c.dst = filepath.Join(s.root, "src"), filepath.Join(c.top, "copy")
	}
	check(t, os.Mkdir(c.top, 0o755))
	rootsTree(t, c.src, "A")

	// The attempt waits in the report of a file until its connection is lost, which a heartbeat
	// detects at the latest.
	var mu sync.Mutex
	losing, lost := false, make(chan struct{})
	c.mayLose = true
	client := w.client(rdmatest.Faults{Drop: func(rdmatest.Posted) bool {
		mu.Lock()
		defer mu.Unlock()
		if losing && !c.wasLost {
			c.wasLost = true
			close(lost)
		}
		return losing && c.mayLose
	}})
	o := w.options(t)
	o.Times, o.Checksum, o.Delete = c.o.Times, c.o.Checksum, c.o.Delete
	o.Tries, o.Tally, o.Timeouts.Heartbeat = xfer.NewTries(), new(xfer.Tally), 20*time.Millisecond
	if c.listed {
		o.Names = listOf(t, "d", "link")
	}
	o.Report = func(e xfer.Event) {
		switch {
		case e.Kind == xfer.EventAfresh:
			c.afresh++
		case e.Kind == xfer.EventFile && strings.HasSuffix(e.Path, "f5") && c.mayLose:
			mu.Lock()
			losing = true
			mu.Unlock()
			<-lost
		}
	}
	c.o = o
	return func() (*xfer.Summary, error) {
		if c.push {
			return client.Push(t.Context(), []string{c.src + "/."}, c.ep, "copy", o)
		}
		return client.Pull(t.Context(), c.ep, []string{"src/."}, c.dst, o)
	}
}

func listOf(t *testing.T, names ...string) *chunker.List {
	b := chunker.NewListBuilder()
	defer b.Close()
	for _, name := range names {
		check(t, b.Add(name))
	}
	l, err := b.Finish()
	check(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// toOtherRoot makes the other server answer. A pull finds a tree of the same names there, and a
// push that deletes something extraneous.
func toOtherRoot(t *testing.T, c *rootsCopy) {
	c.ep = c.other
	if !c.push {
		c.src = c.otherRoot + "/src"
		rootsTree(t, c.src, "B")
		return
	}
	c.dst = c.otherRoot + "/copy"
	if c.o.Delete {
		write(t, c.dst+"/old", nil)
	}
}

func changeFile(t *testing.T, c *rootsCopy) { write(t, c.dst+"/d/f2", []byte("C f2")) }

// rootsTree makes files that have the same sizes in all trees, and other times.
func rootsTree(t *testing.T, dir, content string) {
	t.Helper()
	then := time.Unix(1e9+int64(content[0]), 0)
	for i := range rootsFiles {
		name := fmt.Sprintf("%s/d/f%d", dir, i)
		write(t, name, fmt.Appendf(nil, "%s f%d", content, i))
		check(t, os.Chtimes(name, then, then))
	}
	check(t, os.Symlink("d", dir+"/link"))
}
