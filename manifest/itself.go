package manifest

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// idOf is the identity of the regular file that a stream is, if it is one.
func idOf(stream any) Inode {
	f, ok := stream.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return Inode{}
	}
	st, err := f.Stat()
	if err != nil {
		return Inode{}
	}
	return idOfInfo(st)
}

func idOfInfo(st os.FileInfo) Inode {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && st.Mode().IsRegular() {
		return Inode{sys.Dev, sys.Ino}
	}
	return Inode{}
}

// itself is what a manifest that is being written has in the file system: a
// tree that it is written into does not have it yet, or not any more.
type itself struct {
	stream Inode
	// replaced is the file that will lose its name, base.
	replaced Inode
	base     string
}

func newItself(out io.Writer) itself { return itself{stream: idOf(out)} }

// replacing notes which file has the manifest's name now.
func (s *itself) replacing(name string) {
	if st, err := os.Lstat(name); err == nil {
		s.replaced, s.base = idOfInfo(st), filepath.Base(name)
	}
}

// IsItself tells whether the entry of a tree, of that inode, is the file
// that w writes to, or the one whose name it will take.
func (w *Writer) IsItself(entry string, id Inode) bool {
	if id == (Inode{}) {
		return false
	}
	// A replaced file that has other names keeps them.
	return id == w.itself.stream || id == w.itself.replaced && path.Base(entry) == w.itself.base
}

// IsItself tells whether the file of that inode is the one that r reads.
func (r *Reader) IsItself(id Inode) bool {
	return id != (Inode{}) && id == r.source.id
}
