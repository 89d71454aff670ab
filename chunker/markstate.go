package chunker

import (
	"encoding/binary"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// markState is what a mark records of its partial file, by the file's own times: the clock of
// a file server may differ from this host's. A later copy compares it with the file.
type markState struct {
	ctimeNs int64
	birthNs int64 // 0: the file system does not keep it
	blocks  int64 // of 512 bytes
	// pause is the longest time between two writes to the journal before the mark.
	pause time.Duration
}

// stateOf returns the state of an open file. It is zero if the kernel has no statx(2).
func stateOf(fd int) markState {
	var x unix.Statx_t
	const flags = unix.AT_EMPTY_PATH | unix.AT_STATX_FORCE_SYNC
	err := fsys.Uninterrupted(func() error { return unix.Statx(fd, "", flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &x) })
	if err != nil {
		return markState{}
	}
	s := markState{ctimeNs: fsys.StatxNs(x.Ctime), blocks: int64(x.Blocks)}
	if x.Mask&unix.STATX_BTIME != 0 {
		s.birthNs = fsys.StatxNs(x.Btime)
	}
	return s
}

// markRecord is the record of a mark. A journal without states in its marks is an older one.
func (s markState) markRecord(pieces uint64) *record {
	var d manifest.Digest
	le := binary.LittleEndian
	le.PutUint64(d[:], uint64(s.ctimeNs))
	le.PutUint64(d[8:], uint64(s.birthNs))
	le.PutUint64(d[16:], uint64(s.blocks))
	le.PutUint64(d[24:], uint64(s.pause))
	return &record{kind: recordMark, first: pieces, runs: []PieceRun{{Digest: d}}}
}

// markState is the state in a mark record, or zero if there is none.
func (r *record) markState() (s markState) {
	if r.kind != recordMark || len(r.runs) != 1 {
		return s
	}
	d, le := &r.runs[0].Digest, binary.LittleEndian
	return markState{int64(le.Uint64(d[:])), int64(le.Uint64(d[8:])), int64(le.Uint64(d[16:])), time.Duration(le.Uint64(d[24:]))}
}

// A piece may have been written after the last record in the journal, and have no record
// because the copy was killed. latestWrite and mostPause bound how long after: the longest pause
// between two records says how long a write takes on this disk. A piece that took longer only
// costs reading the file back.
const (
	latestWrite = 10 * time.Millisecond
	mostPause   = time.Second
)

// proves reports whether a file that has the state now, and so many bytes, still has what the
// mark was written for: its first marked bytes. lastNs is when the journal was written last, by
// mtime, because chmod(2) and chown(2) of a whole directory do not change that. The blocks show a
// hole that was made right after the kill. Times of whole seconds cannot show a change within
// the second.
func (s markState) proves(now markState, bytes, marked, lastNs int64) bool {
	second := int64(time.Second)
	switch {
	case s.birthNs == 0 || now.birthNs != s.birthNs:
		return false // an older journal, an unknown file system, or another file of that inode
	case bytes < marked || now.blocks < min(s.blocks, marked/512):
		return false
	case now.ctimeNs%second == 0 && lastNs%second == 0:
		return false
	}
	return now.ctimeNs >= s.ctimeNs && now.ctimeNs-lastNs <= int64(min(max(s.pause, latestWrite), mostPause))
}
