// Package dirs keeps directories open, those that were used last.
package dirs

import (
	"container/list"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Dir is an open directory. It stays open while anyone holds a reference; Retain and Release
// count them.
type Dir struct {
	FD      int // or unix.AT_FDCWD
	Path    string
	Inode   manifest.Inode
	Mode    uint32     // when it was opened
	Reading sync.Mutex // held while names are read from FD: its offset is shared
	refs    atomic.Int32
}

// Relative is what paths are relative to that begin at the working directory or at the root, with
// one reference.
func Relative(path string) *Dir {
	d := &Dir{FD: unix.AT_FDCWD, Path: path}
	d.refs.Store(1)
	return d
}

// Keep takes over fd and returns the directory with one reference.
func Keep(fd int, path string) (*Dir, error) {
	d := new(Dir)
	if err := d.Begin(fd, path); err != nil {
		return nil, err
	}
	return d, nil
}

// Begin takes over fd. Then d has one reference, or fd is closed.
func (d *Dir) Begin(fd int, path string) error {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		fsys.CloseQuietly(fd)
		return err
	}
	d.FD, d.Path, d.Inode, d.Mode = fd, path, manifest.Inode{Dev: st.Dev, Ino: st.Ino}, st.Mode
	d.refs.Store(1)
	return nil
}

// opened makes every type that embeds a Dir one of those that a cache keeps.
func (d *Dir) opened() *Dir { return d }

// Retain adds a reference.
func (d *Dir) Retain() { d.refs.Add(1) }

// Release gives a reference back. The last one closes the directory.
func (d *Dir) Release() {
	if d != nil && d.refs.Add(-1) == 0 && d.FD >= 0 {
		fsys.CloseQuietly(d.FD)
	}
}

// A cache keeps up to maxOpen directories open, or a sixteenth of the files that
// the process may open, but at least MinOpen (see MaxOpen). In the tree's order, neighbours
// share their directories. But a sink makes the directories of thousands of entries
// before it writes the files in them. A directory that is opened again must also be
// looked through again, because others may have changed it.
const (
	MinOpen = 64
	maxOpen = 1024
)

// MaxOpen is how many directories a cache may keep open in this process.
func MaxOpen() int { return fsys.ShareOfFiles(16, MinOpen, maxOpen) }

// Unasked is how many directories a cache keeps open without asking its budget.
const Unasked = 4

// Budget bounds what is kept open, if several share what the process may open. Several goroutines
// may call it at once.
type Budget interface {
	// Take takes n descriptors, or takes none and returns false.
	Take(n int) bool
	// Give returns n descriptors that Take took.
	Give(n int)
}

// Cache keeps the directories that were used last open, by path. The cache holds one
// reference to each, so a directory that is in use stays open when the cache drops it.
type Cache[D interface{ opened() *Dir }] struct {
	open func(path string) (D, error) // opens what is not cached; called unlocked
	Max  int
	// Budget, unless nil, has to have room for every directory beyond Unasked.
	Budget Budget

	mu     sync.Mutex
	taken  int // of the budget
	byPath map[string]*list.Element
	order  *list.List // of D, the last used in front
	closed bool
}

// NewCache returns a cache of at most max directories, which open opens.
func NewCache[D interface{ opened() *Dir }](max int, open func(string) (D, error)) *Cache[D] {
	return &Cache[D]{open: open, Max: max, byPath: make(map[string]*list.Element), order: list.New()}
}

// Get returns the directory at path with a reference for the caller.
func (c *Cache[D]) Get(path string) (d D, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return d, os.ErrClosed
	}
	if el, ok := c.byPath[path]; ok {
		c.order.MoveToFront(el)
		d = el.Value.(D)
		d.opened().Retain()
		c.mu.Unlock()
		return d, nil
	}
	c.mu.Unlock()
	if d, err = c.open(path); err != nil {
		return d, err
	}
	return c.Add(d), nil
}

// Add takes over the caller's reference to d. It returns the cached directory of that
// path with a reference for the caller: d, or another one if another goroutine was
// faster.
func (c *Cache[D]) Add(d D) D {
	h := d.opened()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return d
	}
	if el, ok := c.byPath[h.Path]; ok {
		if cached := el.Value.(D); cached.opened().Inode == h.Inode {
			c.order.MoveToFront(el)
			h.Release()
			cached.opened().Retain()
			return cached
		}
		c.drop(el)
	}
	for c.order.Len() > 0 && !c.hasRoom() {
		c.drop(c.order.Back())
	}
	h.Retain()
	c.byPath[h.Path] = c.order.PushFront(d)
	return d
}

// hasRoom reports whether the cache may keep one more directory open, and takes it of the budget.
func (c *Cache[D]) hasRoom() bool {
	switch n := c.order.Len(); {
	case n >= c.Max:
		return false
	case c.Budget == nil || n < Unasked:
		return true
	}
	if !c.Budget.Take(1) {
		return false
	}
	c.taken++
	return true
}

func (c *Cache[D]) drop(el *list.Element) {
	h := c.order.Remove(el).(D).opened()
	delete(c.byPath, h.Path)
	h.Release()
	if c.taken > max(0, c.order.Len()-Unasked) {
		c.taken--
		c.Budget.Give(1)
	}
}

// DropTaken drops the directory that was used least recently, if the cache has part of the budget,
// and gives that part back. It returns false if it has none.
func (c *Cache[D]) DropTaken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken == 0 {
		return false
	}
	c.drop(c.order.Back())
	return true
}

// Len is how many directories the cache keeps open.
func (c *Cache[D]) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}

// Close drops every directory. The last user of a directory in use closes it.
func (c *Cache[D]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}
