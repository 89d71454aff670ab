package fileset

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// IOMode is how the bytes of a file are read from and written to the disk.
type IOMode uint8

// The modes, best first after IOAuto.
const (
	// IOAuto selects for each file the best mode that its file system supports.
	IOAuto IOMode = iota
	// IODirect bypasses the page cache (O_DIRECT, open(2)), with many concurrent requests
	// for one file when it writes into preallocated space (fallocate(2)).
	IODirect
	// IODontCache uses the page cache, but writes immediately and keeps nothing in it
	// (RWF_DONTCACHE, pwritev2(2), Linux 6.14). IOAuto selects it on Linux 6.16 and later
	// if the file system, although its type supports IODirect, refuses that.
	IODontCache
	// IOBuffered uses the page cache as usual.
	IOBuffered
	ioModes = iota
)

var ioModeNames = [ioModes]string{"auto", "direct", "dontcache", "buffered"}

// String returns the name that ParseIOMode accepts.
func (r IOMode) String() string {
	if int(r) < len(ioModeNames) {
		return ioModeNames[r]
	}
	return fmt.Sprintf("I/O mode %d", uint8(r))
}

// ParseIOMode is String's inverse. ok is false for an unknown name.
func ParseIOMode(word string) (r IOMode, ok bool) {
	for i, name := range ioModeNames {
		if word == name {
			return IOMode(i), true
		}
	}
	return IOAuto, false
}

// IOBytes counts bytes by I/O mode. The zero value is ready to use.
type IOBytes struct{ bytes [ioModes]atomic.Int64 }

func (b *IOBytes) Add(r IOMode, n int) { b.bytes[r].Add(int64(n)) }

// Of returns the number of bytes that used a mode.
func (b *IOBytes) Of(r IOMode) int64 { return b.bytes[r].Load() }

// ErrNoIOMode says that a file system does not have the mode that was asked for.
var ErrNoIOMode = errors.New("the file system does not do this")

// NoIOMode is the error of a file whose file system does not have a mode that was forced.
func NoIOMode(op, path string, m IOMode, why error) error {
	return &OpError{Op: op, Path: path, Kind: ErrNoIOMode, Err: fmt.Errorf("%v I/O: %w", m, why)}
}

// ErrInMemory is why a file system in memory has no mode past the page cache.
var ErrInMemory = errors.New("it is in memory")

// ErrInOrder is why a file whose writes must wait for their turn has no mode past the page cache.
var ErrInOrder = errors.New("it takes writes in order only")

// LacksIOMode reports whether an error says that the file system does not have a mode: not
// that this file or this disk has a problem.
func LacksIOMode(err error) bool {
	return err == ErrInMemory || err == ErrInOrder || err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}
