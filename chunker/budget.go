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
	// leastFiles is how many files a Tree opens without asking its budget.
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
func (t *Tree) MayOpen(b Budget) { t.files.budget, t.dirs.Budget = b, b }
