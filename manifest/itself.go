package manifest

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// idOf returns the inode of a stream that is a regular file, else the zero Inode.
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

// itself describes the files that belong to a manifest that is being written. If the
// manifest is written into the tree that it describes, it must not list them: the
// finished tree lacks the temporary file, and the replaced file is about to go.
type itself struct {
	stream Inode
	// replaced is the file that will lose its name, base.
	replaced Inode
	base     string
}

func newItself(out io.Writer) itself { return itself{stream: idOf(out)} }

// replacing notes the file that has the manifest's name now.
func (s *itself) replacing(name string) {
	if st, err := os.Lstat(name); err == nil {
		s.replaced, s.base = idOfInfo(st), filepath.Base(name)
	}
}

// IsItself reports whether the entry of a tree, with that inode, is the file that w
// writes to, or the file whose name the manifest will take.
func (w *Writer) IsItself(entry string, id Inode) bool {
	if id == (Inode{}) {
		return false
	}
	// A replaced file that has other names keeps them.
	return id == w.itself.stream || id == w.itself.replaced && path.Base(entry) == w.itself.base
}

// IsItself reports whether r reads the file with that inode.
func (r *Reader) IsItself(id Inode) bool {
	return id != (Inode{}) && id == r.source.id
}
