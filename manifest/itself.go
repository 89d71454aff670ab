package manifest

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"syscall"
)

// fileID names a file whatever path leads to it; zero for what is none.
type fileID struct{ dev, ino uint64 }

// idOf is the identity of the regular file that a stream is, if it is one.
func idOf(stream any) fileID {
	f, ok := stream.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return fileID{}
	}
	st, err := f.Stat()
	if err != nil {
		return fileID{}
	}
	return idOfInfo(st)
}

func idOfInfo(st os.FileInfo) fileID {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && st.Mode().IsRegular() {
		return fileID{sys.Dev, sys.Ino}
	}
	return fileID{}
}

// itself is what a manifest that is being written has in the file system: a
// tree that it is written into does not have it yet, or not any more.
type itself struct {
	stream fileID
	// replaced is the file that will lose its name, base.
	replaced fileID
	base     string
}

func newItself(out io.Writer) itself { return itself{stream: idOf(out)} }

// replacing notes which file has the manifest's name now.
func (s *itself) replacing(name string) {
	if st, err := os.Lstat(name); err == nil {
		s.replaced, s.base = idOfInfo(st), filepath.Base(name)
	}
}

// IsItself tells whether the entry of a tree, of that device and inode, is the
// file that w writes to, or the one whose name it will take.
func (w *Writer) IsItself(entry string, dev, ino uint64) bool {
	id := fileID{dev, ino}
	if id == (fileID{}) {
		return false
	}
	// A replaced file that has other names keeps them.
	return id == w.itself.stream || id == w.itself.replaced && path.Base(entry) == w.itself.base
}

// IsItself tells whether the file of that device and inode is the one that r
// reads.
func (r *Reader) IsItself(dev, ino uint64) bool {
	id := fileID{dev, ino}
	return id != (fileID{}) && id == r.source.id
}
