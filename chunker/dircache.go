// Package dirs keeps directories open, those that were used last.
package chunker

import (
	"container/list"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// keptDir is an open directory. It stays open while anyone holds a reference; retain and release
// count them.
type keptDir struct {
	fd      int // or unix.AT_FDCWD
	path    string
	inode   manifest.Inode
	mode    uint32     // when it was opened
	reading sync.Mutex // held while names are read from fd: its offset is shared
	refs    atomic.Int32
}

// relative is what paths are relative to that begin at the working directory or at the root, with
// one reference.
func relative(path string) *keptDir {
	d := &keptDir{fd: unix.AT_FDCWD, path: path}
	d.refs.Store(1)
	return d
}

// keepOpen takes over fd and returns the directory with one reference.
func keepOpen(fd int, path string) (*keptDir, error) {
	d := new(keptDir)
	return d, d.begin(fd, path)
}

// begin takes over fd. Then d has one reference, or fd is closed.
func (d *keptDir) begin(fd int, path string) error {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		fsys.CloseQuietly(fd)
		return err
	}
	d.fd, d.path, d.inode, d.mode = fd, path, manifest.Inode{Dev: st.Dev, Ino: st.Ino}, st.Mode
	d.refs.Store(1)
	return nil
}

// opened makes every type that embeds an keptDir one of those that a cache keeps.
func (d *keptDir) opened() *keptDir { return d }

// retain adds a reference.
func (d *keptDir) retain() { d.refs.Add(1) }

// release gives a reference back. The last one closes the directory.
func (d *keptDir) release() {
	if d != nil && d.refs.Add(-1) == 0 && d.fd >= 0 {
		fsys.CloseQuietly(d.fd)
	}
}

// A cache keeps up to maxCachedDirs directories open, or a sixteenth of the files that
// the process may open, but at least minCachedDirs. In the tree's order, neighbours
// share their directories. But a sink makes the directories of thousands of entries
// before it writes the files in them. A directory that is opened again must also be
// looked through again, because others may have changed it.
const (
	minCachedDirs = 64
	maxCachedDirs = 1024
)

// cachedDirs is how many directories a cache may keep open in this process.
func cachedDirs() int { return ShareOfFiles(16, minCachedDirs, maxCachedDirs) }

// leastDirs is how many directories a cache keeps open without asking its budget.
const leastDirs = 4

// dirBudget bounds what is kept open, if several share what the process may open. Several goroutines may call it at once.
type dirBudget interface {
	// Take takes n descriptors, or takes none and returns false.
	Take(n int) bool
	// Give returns n descriptors that Take took.
	Give(n int)
}

// dirCache keeps the directories that were used last open, by path. The cache holds one
// reference to each, so a directory that is in use stays open when the cache drops it.
type dirCache[D interface{ opened() *keptDir }] struct {
	open func(path string) (D, error) // opens what is not cached; called unlocked
	max  int
	// budget, unless nil, has to have room for every directory beyond leastDirs.
	budget dirBudget

	mu     sync.Mutex
	taken  int // of the budget
	byPath map[string]*list.Element
	order  *list.List // of D, the last used in front
	closed bool
}

// newDirCache returns a cache of at most max directories, which open opens.
func newDirCache[D interface{ opened() *keptDir }](max int, open func(string) (D, error)) *dirCache[D] {
	return &dirCache[D]{open: open, max: max, byPath: make(map[string]*list.Element), order: list.New()}
}

// get returns the directory at path with a reference for the caller.
func (c *dirCache[D]) get(path string) (d D, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return d, os.ErrClosed
	}
	if el, ok := c.byPath[path]; ok {
		c.order.MoveToFront(el)
		d = el.Value.(D)
		d.opened().retain()
		c.mu.Unlock()
		return d, nil
	}
	c.mu.Unlock()
	if d, err = c.open(path); err != nil {
		return d, err
	}
	return c.add(d), nil
}

// add takes over the caller's reference to d. It returns the cached directory of that
// path with a reference for the caller: d, or another one if another goroutine was
// faster.
func (c *dirCache[D]) add(d D) D {
	h := d.opened()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return d
	}
	if el, ok := c.byPath[h.path]; ok {
		if cached := el.Value.(D); cached.opened().inode == h.inode {
			c.order.MoveToFront(el)
			h.release()
			cached.opened().retain()
			return cached
		}
		c.drop(el)
	}
	for c.order.Len() > 0 && !c.hasRoom() {
		c.drop(c.order.Back())
	}
	h.retain()
	c.byPath[h.path] = c.order.PushFront(d)
	return d
}

// hasRoom reports whether the cache may keep one more directory open, and takes it of the budget.
func (c *dirCache[D]) hasRoom() bool {
	switch n := c.order.Len(); {
	case n >= c.max:
		return false
	case c.budget == nil || n < leastDirs:
		return true
	}
	if !c.budget.Take(1) {
		return false
	}
	c.taken++
	return true
}

func (c *dirCache[D]) drop(el *list.Element) {
	h := c.order.Remove(el).(D).opened()
	delete(c.byPath, h.path)
	h.release()
	if c.taken > max(0, c.order.Len()-leastDirs) {
		c.taken--
		c.budget.Give(1)
	}
}

// len is how many directories the cache keeps open.
func (c *dirCache[D]) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// close drops every directory. The last user of a directory in use closes it.
func (c *dirCache[D]) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}
