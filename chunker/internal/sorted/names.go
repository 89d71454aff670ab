// Package sorted has the names of directories in order, in bounded memory: what has no room goes
// to a temporary file.
package sorted

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// BudgetBytes bounds the names of all directories on the walk's way in memory.
	// Beyond it, the directory that is being read is spilled to a file.
	BudgetBytes = 4 << 20
	// minRunBytes is the least size of a spilled run when the directories above have
	// used up the budget.
	minRunBytes = 256 << 10
	// DirentBytes is read from a directory per getdents64(2) call.
	DirentBytes = 64 << 10
)

// Stack holds the sorted names of the directories on the walk's way. All share one
// arena and one index, since the walk descends and returns like a stack. Names that do
// not fit go to the spill file.
type Stack struct {
	arena  []byte   // records: length (2 bytes), name
	index  []uint32 // offsets of records in arena, sorted for each directory
	Spill  SpillFile
	Budget int // bytes
	MinRun int // bytes
	dirent []byte
	// Getdents is getdents64(2), or a test's substitute.
	Getdents func(fd int, buf []byte) (int, error)
	// Ended, unless nil, returns the error by which reading a directory is to end.
	Ended func() error
}

func NewStack() *Stack {
	return &Stack{Budget: BudgetBytes, MinRun: minRunBytes, dirent: make([]byte, DirentBytes), Getdents: unix.Getdents}
}

// Names is one directory's part of a Stack.
type Names struct {
	arenaStart, indexStart int
	next                   int   // in index
	merge                  *runs // of a directory that was spilled, else nil
	// distinct: each name counts once, however often it was added.
	distinct bool
	last     []byte // of a spilled, distinct directory: the name that advance went past
}

func (s *Stack) Begin() Names {
	return Names{arenaStart: len(s.arena), indexStart: len(s.index), next: len(s.index)}
}

// usedBytes is the memory that names take from an arena and index position on.
func (s *Stack) usedBytes(arenaStart, indexStart int) int {
	return len(s.arena) - arenaStart + 4*(len(s.index)-indexStart)
}

// Add appends a name to the list that was begun last.
func (s *Stack) Add(l *Names, name []byte) error {
	s.index = append(s.index, uint32(len(s.arena)))
	s.arena = binary.NativeEndian.AppendUint16(s.arena, uint16(len(name)))
	s.arena = append(s.arena, name...)
	if s.usedBytes(0, 0) > s.Budget && s.usedBytes(l.arenaStart, l.indexStart) > s.MinRun {
		return s.spillList(l)
	}
	return nil
}

// Finish sorts the list that was begun last.
func (s *Stack) Finish(l *Names) error {
	if l.merge != nil || s.usedBytes(0, 0) > s.Budget {
		if len(s.index) > l.indexStart {
			if err := s.spillList(l); err != nil {
				return err
			}
		}
		if l.merge == nil {
			return nil
		}
		return l.merge.rewind()
	}
	s.sort(l)
	return nil
}

func (s *Stack) sort(l *Names) {
	names := s.index[l.indexStart:]
	slices.SortFunc(names, func(a, b uint32) int { return bytes.Compare(s.name(a), s.name(b)) })
	if l.distinct {
		names = slices.CompactFunc(names, func(a, b uint32) bool { return bytes.Equal(s.name(a), s.name(b)) })
		s.index = s.index[:l.indexStart+len(names)]
	}
}

func (s *Stack) name(at uint32) []byte {
	n := uint32(binary.NativeEndian.Uint16(s.arena[at:]))
	return s.arena[at+2 : at+2+n]
}

// spillList moves the list's names from the arena to a sorted run in the file.
func (s *Stack) spillList(l *Names) error {
	s.sort(l)
	if l.merge == nil {
		merge, err := s.Spill.Begin()
		if err != nil {
			return err
		}
		l.merge = merge
	}
	w := l.merge.NewRun()
	for _, at := range s.index[l.indexStart:] {
		if err := w.Add(s.name(at)); err != nil {
			return err
		}
	}
	if err := w.finish(); err != nil {
		return err
	}
	s.arena, s.index = s.arena[:l.arenaStart], s.index[:l.indexStart]
	return nil
}

// Peek returns the list's next name, or false at the list's end. The name is valid
// until the stack is next used.
func (s *Stack) Peek(l *Names) ([]byte, bool) {
	if l.merge != nil {
		return l.merge.peek()
	}
	if l.next == len(s.index) {
		return nil, false
	}
	return s.name(s.index[l.next]), true
}

// Ahead returns copies of the names that come next, n at most, which for a directory that
// was spilled are none.
func (s *Stack) Ahead(l *Names, n int) []string {
	if l.merge != nil {
		return nil
	}
	next := s.index[l.next:]
	names := make([]string, min(n, len(next)))
	for i := range names {
		names[i] = string(s.name(next[i]))
	}
	return names
}

// Advance goes past the name that peek returned.
func (s *Stack) Advance(l *Names) error {
	if l.merge == nil {
		l.next++
		return nil
	}
	if !l.distinct {
		return l.merge.advance()
	}
	// Each run has a name once, but several runs may have the same name.
	name, _ := l.merge.peek()
	l.last = append(l.last[:0], name...)
	for {
		if err := l.merge.advance(); err != nil {
			return err
		}
		if name, more := l.merge.peek(); !more || !bytes.Equal(name, l.last) {
			return nil
		}
	}
}

// Drop frees the memory of the list that was begun last.
func (s *Stack) Drop(l *Names) {
	s.arena, s.index = s.arena[:l.arenaStart], s.index[:l.indexStart]
	if l.merge != nil {
		l.merge.drop()
	}
}

// ReadDir adds every name in the directory open as fd, from its beginning on. A name
// that the file system gives twice counts once: POSIX leaves open what readdir(3)
// returns for a directory that changes meanwhile, and NFS and FUSE do repeat names. The
// walk asks for an entry's type by its name, so that the entry has one type whatever
// the directory said.
func (s *Stack) ReadDir(l *Names, fd int) error {
	l.distinct = true
	if _, err := unix.Seek(fd, 0, 0); err != nil {
		return err
	}
	for {
		if s.Ended != nil {
			if err := s.Ended(); err != nil {
				return err
			}
		}
		n, err := s.Getdents(fd, s.dirent)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		err = EachDirent(s.dirent[:n], func(name []byte) error { return s.Add(l, name) })
		if err != nil {
			return err
		}
	}
}

// EachDirent calls visit with each name in the records that getdents64(2) returned,
// except "." and "..". A record is: records of inode (8 bytes), offset (8), record
// length (2), type (1), name ending in NUL.
func EachDirent(records []byte, visit func(name []byte) error) error {
	const nameAt = 19
	for len(records) >= nameAt {
		length := int(binary.NativeEndian.Uint16(records[16:]))
		if length < nameAt || length > len(records) {
			return unix.EIO
		}
		name := records[nameAt:length]
		if end := bytes.IndexByte(name, 0); end >= 0 {
			name = name[:end]
		}
		records = records[length:]
		if len(name) == 0 || string(name) == "." || string(name) == ".." {
			continue
		}
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}
