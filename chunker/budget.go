package chunker

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Budget bounds the files and directories that a Tree or Sink keeps open, if several share what
// the process may open. Several goroutines may call it at once.
type Budget interface {
	// Take takes n descriptors, or takes none and returns false.
	Take(n int) bool
	// Give returns n descriptors that Take took.
	Give(n int)
}

const (
	// leastDirs is how many directories a cache keeps open without asking its budget, and
	// leastFiles how many files a Tree opens so.
	leastDirs  = 4
	leastFiles = 8
	// filesOfFile is how many descriptors a file of a Tree takes: one more past the page cache.
	filesOfFile = 2
)

// ErrBudget says that the Budget has no room for one more file. Some of the Tree's own files are
// open then, so there is room once one of them is closed.
var ErrBudget = fmt.Errorf("other sessions have as many files open as the process may have: %w", unix.EMFILE)

// budgetedFiles counts the open files of a Tree against a budget, which may be nil.
type budgetedFiles struct {
	budget Budget
	open   atomic.Int64
}

// begin makes room for a file. taken says that the budget gave it.
func (b *budgetedFiles) begin() (taken bool, err error) {
	if b.budget == nil || b.open.Add(1) <= leastFiles {
		return false, nil
	}
	if b.budget.Take(filesOfFile) {
		return true, nil
	}
	b.open.Add(-1)
	return false, ErrBudget
}

func (b *budgetedFiles) end(taken bool) {
	if b.budget == nil {
		return
	}
	b.open.Add(-1)
	if taken {
		b.budget.Give(filesOfFile)
	}
}

// MayOpen bounds what the tree keeps open. Call it before Walk and Open.
func (t *Tree) MayOpen(b Budget) { t.files.budget, t.dirs.budget = b, b }

// MayOpen bounds the directories that the sink keeps open. Call it before Place.
func (s *Sink) MayOpen(b Budget) { s.dirs.budget = b }
