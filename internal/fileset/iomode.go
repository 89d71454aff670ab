package fileset

import (
	"fmt"
	"sync/atomic"
)

// IOMode is how the bytes of a file get to the disk.
type IOMode uint8

// The modes, best first after IOAuto.
const (
	// IOAuto takes for each file the best mode that its file system has.
	IOAuto IOMode = iota
	// IODirect goes past the page cache (O_DIRECT, open(2)), many requests of one file
	// at once, when writing into space that was allocated beforehand (fallocate(2)).
	IODirect
	// IODontCache goes through the page cache, which writes at once and keeps nothing
	// (RWF_DONTCACHE, pwritev2(2), Linux 6.14). IOAuto takes it from Linux 6.16 on, where a
	// file system of which it takes IODirect refuses that.
	IODontCache
	// IOBuffered leaves it to the page cache.
	IOBuffered
	ioModes = iota
)

var ioModeNames = [ioModes]string{"auto", "direct", "dontcache", "buffered"}

// String is the mode's word, as ParseIOMode takes it.
func (r IOMode) String() string {
	if int(r) < len(ioModeNames) {
		return ioModeNames[r]
	}
	return fmt.Sprintf("I/O mode %d", uint8(r))
}

// ParseIOMode is String's inverse. ok is false for a word that is no mode.
func ParseIOMode(word string) (r IOMode, ok bool) {
	for i, name := range ioModeNames {
		if word == name {
			return IOMode(i), true
		}
	}
	return IOAuto, false
}

// IOBytes counts bytes by the mode that they took. The zero value is ready for use.
type IOBytes struct{ bytes [ioModes]atomic.Int64 }

func (b *IOBytes) Add(r IOMode, n int) { b.bytes[r].Add(int64(n)) }

// Of is how many bytes took a mode.
func (b *IOBytes) Of(r IOMode) int64 { return b.bytes[r].Load() }
