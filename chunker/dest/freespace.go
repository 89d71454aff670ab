package dest

import (
	"fmt"
	"math"
	"strings"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// FileSystem is a file system that entries go to. The sink keeps it open, and closes
// it.
type FileSystem struct {
	sink *Sink
	dir  *dirHandle // the first directory that the sink met on it
}

// FileSystemOf returns the file system that will hold an entry's data: that of the
// directory that the entry goes into or, if that is missing or cannot be opened, of the
// nearest directory above. All entries of one device (st_dev, stat(2)) get the same
// FileSystem. Btrfs has a device for each subvolume, and one space for all.
// FileSystemOf blocks for the disk unless the directory is open already.
func (s *Sink) FileSystemOf(path string) *FileSystem {
	h := s.nearestDir(path)
	defer h.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	fs := s.fileSystems[h.Inode.Dev]
	if fs == nil {
		fs = &FileSystem{sink: s, dir: h.retain()}
		s.fileSystems[h.Inode.Dev] = fs
	}
	return fs
}

// nearestDir returns the directory that an entry goes into, or the nearest directory
// above that can be opened, with a reference.
func (s *Sink) nearestDir(path string) *dirHandle {
	target, err := s.target("find the file system of", path)
	if err != nil {
		return s.base.retain()
	}
	dir, _ := fileset.SplitPath(target)
	if h, err := s.dir(dir); err == nil {
		return h
	}
	near := s.base.retain()
	for end := 0; end < len(dir); end++ {
		if next := strings.IndexByte(dir[end:], '/'); next < 0 {
			end = len(dir)
		} else {
			end += next
		}
		h, err := s.dir(dir[:end])
		if err != nil {
			break
		}
		near.release()
		near = h
	}
	return near
}

// String says where the file system is, for messages.
func (f *FileSystem) String() string {
	if path := f.sink.entryPath(f.dir.Path); f.dir != f.sink.base && path != "." {
		return fmt.Sprintf("at the destination, in %q", path)
	}
	return "at the destination"
}

// FreeBytes is how much this process can expect to write to the file system, with the space
// that the sink's files have and have not written yet. It is the largest number if the file
// system does not report that. most is how much anybody can write at most: it is the largest
// number too if files may take less space than they have bytes, because the file system
// compresses them or finds blocks that it has already, or if another host keeps them.
func (f *FileSystem) FreeBytes() (expected, most int64) {
	expected, most = fsys.FreeBytes(f.dir.FD)
	ahead := f.sink.deviceOf(f.dir).rungs.aheadBytes.Load()
	return min(expected, math.MaxInt64-ahead) + ahead, min(most, math.MaxInt64-ahead) + ahead
}
