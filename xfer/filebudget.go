package xfer

import (
	"os"
	"sync"

	"gdrcp/chunker"
	"gdrcp/internal/fsys"
)

// budgetBlock is how many descriptors a session takes from its server at a time, if available: all
// sessions share the server's lock.
const budgetBlock = 64

// fileBudget is the number of files that a server's session may have open beyond the least that it
// needs. It takes them from a total for all sessions, of which no key gets everything.
type fileBudget struct {
	server chunker.Budget

	mu         sync.Mutex
	used, have int
}

// Take implements chunker.Budget.
func (b *fileBudget) Take(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if lacks := b.used + n - b.have; lacks > 0 {
		more := max(lacks, budgetBlock)
		if !b.server.Take(more) {
			if more = lacks; !b.server.Take(more) {
				return false
			}
		}
		b.have += more
	}
	b.used += n
	return true
}

// Give implements chunker.Budget.
func (b *fileBudget) Give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.have-b.used >= 2*budgetBlock {
		b.have -= budgetBlock
		b.server.Give(budgetBlock)
	}
}

// filesLeft is how many more files this process may have open.
func filesLeft() int {
	all := fsys.ShareOfFiles(1, 0, 1<<30)
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		all -= len(open) // such as the directories that keys open
	}
	return max(all, 1)
}
