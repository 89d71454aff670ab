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

// ShareOfFiles is the number of files that the process may open (setrlimit(2)), divided
// by parts, but within least and most.
func ShareOfFiles(parts uint64, least, most int) int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur/parts >= uint64(most) {
		return most
	}
	return max(least, int(r.Cur/parts))
}

// dirHandle is an open directory. It stays open while anyone holds a reference;
// retain and release count them.
type dirHandle struct {
	fd    int // or unix.AT_FDCWD
	path  string
	inode manifest.Inode
	mode  uint32 // when it was opened
	fresh bool   // made by this sink, so nothing foreign is in it
	// searchOnly: it may be searched, and not read; see searchonly.go.
	searchOnly bool
	swept      sync.Once // leftovers were looked for
	// journals: when they were looked for, there were partial files.
	journals atomic.Bool
	folding  atomic.Uint32
	spelt    uint64     // its number among those in spellings, whose lock guards it, or 0
	reading  sync.Mutex // held while names are read from fd: its offset is shared
	refs     atomic.Int32
	device   atomic.Pointer[device] // of a sink's directory, once it was asked for
	adds     struct {
		once sync.Once
		only bool
	}
	// tried is which permission bits new files here had, by those that they were made with.
	triedMu sync.Mutex
	tried   map[uint32]uint32
}

// newDirHandle takes over fd and returns a handle with one reference.
func newDirHandle(fd int, path string) (*dirHandle, error) {
	h := &dirHandle{fd: fd, path: path}
	h.refs.Store(1)
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		fsys.CloseQuietly(fd)
		return nil, err
	}
	h.inode, h.mode = inodeOf(&st), st.Mode
	return h, nil
}

func (h *dirHandle) retain() *dirHandle {
	h.refs.Add(1)
	return h
}

func (h *dirHandle) release() {
	if h != nil && h.refs.Add(-1) == 0 && h.fd >= 0 {
		fsys.CloseQuietly(h.fd)
	}
}

// dirCache keeps the directories that were used last open, by path. The cache holds one
// reference to each, so a directory that is in use stays open when the cache drops it.
type dirCache struct {
	open func(path string) (*dirHandle, error) // opens what is not cached; called unlocked
	max  int
	// budget, unless nil, has to have room for every directory beyond leastDirs.
	budget Budget

	mu     sync.Mutex
	taken  int // of the budget
	byPath map[string]*list.Element
	order  *list.List // of *dirHandle, the last used in front
	closed bool
}

func newDirCache(max int, open func(string) (*dirHandle, error)) *dirCache {
	return &dirCache{open: open, max: max, byPath: make(map[string]*list.Element), order: list.New()}
}

// get returns the directory at path with a reference for the caller.
func (c *dirCache) get(path string) (*dirHandle, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, os.ErrClosed
	}
	if el, ok := c.byPath[path]; ok {
		c.order.MoveToFront(el)
		h := el.Value.(*dirHandle).retain()
		c.mu.Unlock()
		return h, nil
	}
	c.mu.Unlock()
	h, err := c.open(path)
	if err != nil {
		return nil, err
	}
	return c.add(h), nil
}

// add takes over the caller's reference to h. It returns the cached directory of that
// path with a reference for the caller: h, or another handle if another goroutine was
// faster.
func (c *dirCache) add(h *dirHandle) *dirHandle {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return h
	}
	if el, ok := c.byPath[h.path]; ok {
		if cached := el.Value.(*dirHandle); cached.inode == h.inode {
			c.order.MoveToFront(el)
			h.release()
			return cached.retain()
		}
		c.drop(el)
	}
	for c.order.Len() > 0 && !c.hasRoom() {
		c.drop(c.order.Back())
	}
	c.byPath[h.path] = c.order.PushFront(h.retain())
	return h
}

// hasRoom reports whether the cache may keep one more directory open, and takes it of the budget.
func (c *dirCache) hasRoom() bool {
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

func (c *dirCache) drop(el *list.Element) {
	h := c.order.Remove(el).(*dirHandle)
	delete(c.byPath, h.path)
	h.release()
	if c.taken > max(0, c.order.Len()-leastDirs) {
		c.taken--
		c.budget.Give(1)
	}
}

// close drops every directory. The last user of a directory in use closes it.
func (c *dirCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}
