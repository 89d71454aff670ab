package chunker

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
)

// Budget bounds the files and directories that a Tree, or a destination, keeps open, if several share
// what the process may open. Several goroutines may call it at once.
type Budget = dirs.Budget

const (
	// leastFiles is the minimum of how many files a Tree opens without asking its budget.
	leastFiles = 8
	// filesOfFile is how many descriptors a file of a Tree takes: one more past the page cache.
	filesOfFile = 2
)

// ErrBudget says that the Budget has no room for one more file. Some of the Tree's own files are
// open then, so there is room once one of them is closed.
var ErrBudget = fmt.Errorf("other sessions have as many files open as the process may have: %w", unix.EMFILE)

// budgetedFiles counts the open files of a Tree against a budget, which may be nil.
type budgetedFiles struct {
	budget  Budget
	unasked atomic.Int64 // open files that have no part of the budget
	least   atomic.Int64 // how many of these there may be
}

// begin makes room for a file. taken says that the budget gave it. If the budget has no room,
// dropOther gives back some of what the Tree has taken for something else, or returns false.
func (b *budgetedFiles) begin(dropOther func() bool) (taken bool, err error) {
	if b.budget == nil || b.unasked.Add(1) <= b.least.Load() {
		return false, nil
	}
	b.unasked.Add(-1)
	for !b.budget.Take(filesOfFile) {
		if !dropOther() {
			return false, ErrBudget
		}
	}
	return true, nil
}

func (b *budgetedFiles) end(taken bool) {
	switch {
	case taken:
		b.budget.Give(filesOfFile)
	case b.budget != nil:
		b.unasked.Add(-1)
	}
}

// MayOpen bounds what the tree keeps open, except that it opens at least so many files. Call it
// before Walk and Open.
func (t *Tree) MayOpen(b Budget, least int) {
	t.files.budget, t.dirs.Budget = b, b
	t.files.least.Store(int64(max(least, leastFiles)))
}

// MayOpenAnother lets the tree have one more file open without asking its budget.
func (t *Tree) MayOpenAnother() { t.files.least.Add(1) }
