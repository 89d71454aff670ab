package manifest

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// idOf returns the inode of a stream that is a regular file, else the zero Inode.
func idOf(stream any) Inode {
	f, ok := stream.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return Inode{}
	}
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return Inode{}
	}
	return idOfInfo(st)
}

func idOfInfo(st os.FileInfo) Inode {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return Inode{sys.Dev, sys.Ino}
	}
	return Inode{}
}

// FileName is one name of a file: the inode of its directory and the last
// component. A file may have others, in trees of hard links with the same last
// component. No file has the zero FileName.
type FileName struct {
	Dir  Inode
	Base string
}

// nameOf splits a path.
func nameOf(name string) FileName {
	st, err := os.Stat(filepath.Dir(name))
	if err != nil {
		return FileName{}
	}
	return FileName{idOfInfo(st), filepath.Base(name)}
}

// NameTaken returns the name that a manifest made by Create(name) takes. It is
// the zero FileName if the manifest is written to an existing device or FIFO,
// or if its directory is missing. It accesses the disk.
func NameTaken(name string) FileName {
	if isSpecial(name) {
		return FileName{}
	}
	return nameOf(name)
}

// Replaces reports whether a manifest made by Create(name) takes the name file or, with
// follow, the name of the target of a link at file. It accesses the disk.
func Replaces(name, file string, follow bool) bool {
	taken := NameTaken(name)
	if taken == (FileName{}) {
		return false
	}
	names := []string{file}
	if to, err := filepath.EvalSymlinks(file); err == nil && follow {
		names = append(names, to)
	}
	return slices.ContainsFunc(names, func(file string) bool {
		n := nameOf(file)
		return n == taken || n.Dir == taken.Dir && strings.EqualFold(n.Base, taken.Base) && isSameFile(name, file)
	})
}

// isSameFile reports whether two names refer to the same file. It follows no links.
func isSameFile(a, b string) bool {
	one, err := os.Lstat(a)
	if err != nil {
		return false
	}
	other, err := os.Lstat(b)
	return err == nil && os.SameFile(one, other)
}

// nameOfStream returns the name by which a regular file was opened (proc_pid_fd(5)).
func nameOfStream(stream any) FileName {
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok {
		return FileName{}
	}
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil || !filepath.IsAbs(name) {
		return FileName{}
	}
	return nameOf(name)
}

// isOf reports whether an entry of a tree has that name. If the entry's
// directory is not known (the zero Inode), only the last component is compared.
func (n FileName) isOf(entry string, dir Inode) bool {
	return n.Base != "" && n.Base == path.Base(entry) && (dir == Inode{} || dir == n.Dir)
}

// itself describes the files that belong to a manifest that is being written.
// If the manifest is written into the tree that it describes, it must not list
// them: the finished tree lacks the temporary file, and the file that now has
// the manifest's name is about to be replaced.
type itself struct {
	stream Inode
	// replaced is the file or link that will be replaced, and name is its name.
	replaced Inode
	name     FileName
}

func newItself(out io.Writer) itself { return itself{stream: idOf(out)} }

// replacing records the file that has the manifest's name now.
func (s *itself) replacing(name string) {
	if st, err := os.Lstat(name); err == nil {
		s.replaced, s.name = idOfInfo(st), nameOf(name)
	}
}

// IsItself reports whether the entry of a tree is the file that w writes to, or
// the file whose name the manifest will take. dir is the inode of the entry's
// directory, or zero if that is not known, and id the entry's own.
func (w *Writer) IsItself(entry string, dir, id Inode) bool {
	if id == (Inode{}) {
		return false
	}
	// A replaced file that has other names keeps them. A walk that follows links finds the inode
	// behind a link.
	return id == w.itself.stream || w.itself.name.isOf(entry, dir) && (dir != Inode{} || id == w.itself.replaced)
}

// IsItself reports whether the entry of a tree is the file that r reads, under
// the name by which it was opened. dir and id are as for a Writer.
func (r *Reader) IsItself(entry string, dir, id Inode) bool {
	if id == (Inode{}) || id != r.source.id {
		return false
	}
	return r.source.name == FileName{} || r.source.name.isOf(entry, dir)
}
