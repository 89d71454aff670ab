package dest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// A journal says which pieces of a partial file have arrived, so that a later copy can
// go on behind them. It lies beside the partial file and is little-endian. The header:
//
//	offset size field
//	     0    8 journalMagic
//	     8   40 name of the partial file, a random one, and a zero
//	    48    8 device of the partial file
//	    56    8 inode of the partial file
//	    64   16 what the file is at the source (Partial.Source)
//	    80    8 size of the whole file, bytes
//	    88    8 size of a piece, bytes
//	    96    1 algorithm of the digests
//	    97    7 zero
//	   104    4 owner that the partial file was made with
//	   108    4 group that the partial file was made with
//	   112    8 XXH3-64 over the header so far
//
// Records follow. Each is bound to this journal by its checksum, whose seed is that of
// the header, so that blocks of another file do not pass for records:
//
//	  0    1 kind
//	  1    1 zero
//	  2    2 number of runs
//	  4    4 zero
//	  8    8 first piece, or number of pieces
//	 16      runs, each with the number of pieces (8) and their digest (32)
//	end    8 XXH3-64 over the record so far
//
// A mark has one run, of no pieces: its digest is the state of the partial file (markState).
// The first record that is torn ends the journal.
const (
	journalMagic    = "GDRCPJ01"
	journalHeader   = 120
	recordHeader    = 16
	runBytes        = 8 + 32
	maxRecordRuns   = 256
	recordPieces    = 1 // runs of pieces were verified and written
	recordMark      = 2 // all pieces before this one are on the disk; the digest is the file's markState
	recordBoot      = 3 // what follows was written since this boot; the digest is its id
	bootIDBytes     = 16
	journalSumBytes = 8
)

// PieceRun is pieces in a row with the same digest.
type PieceRun struct {
	Digest manifest.Digest
	Pieces uint64
	// Hole says that nothing was written for them. A journal does not record it.
	Hole bool
}

// bootID is BootID in binary. It is all zero where the kernel does not tell it: then
// nothing counts as of the same boot.
func bootID() (id [bootIDBytes]byte) {
	text, err := fsys.BootID()
	if err != nil {
		return id
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(string(text)), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id
	}
	return [bootIDBytes]byte(raw)
}

// journalHead is the header of a journal.
type journalHead struct {
	temp    string
	inode   manifest.Inode
	uid     uint32
	gid     uint32
	partial Partial
	size    int64
}

func (h *journalHead) encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, journalHeader)
	copy(b, journalMagic)
	copy(b[8:48], h.temp)
	le.PutUint64(b[48:], h.inode.Dev)
	le.PutUint64(b[56:], h.inode.Ino)
	copy(b[64:80], h.partial.Source[:])
	le.PutUint64(b[80:], uint64(h.size))
	le.PutUint64(b[88:], uint64(h.partial.PieceBytes))
	b[96] = byte(h.partial.Hash)
	le.PutUint32(b[104:], h.uid)
	le.PutUint32(b[108:], h.gid)
	le.PutUint64(b[112:], xxh3.Hash(b[:112]))
	return b
}

// errJournal says that a journal, or its next record, is not one.
var errJournal = errors.New("not a journal, or torn")

// decodeJournalHead reads a header from b, of journalHeader bytes. seed is the seed of
// the records' checksums.
func decodeJournalHead(b []byte) (h journalHead, seed uint64, err error) {
	le := binary.LittleEndian
	seed = le.Uint64(b[112:])
	if string(b[:8]) != journalMagic || xxh3.Hash(b[:112]) != seed {
		return h, 0, errJournal
	}
	name := bytes.TrimRight(b[8:48], "\x00")
	h = journalHead{
		temp: string(name), inode: manifest.Inode{Dev: le.Uint64(b[48:]), Ino: le.Uint64(b[56:])}, size: int64(le.Uint64(b[80:])),
		uid: le.Uint32(b[104:]), gid: le.Uint32(b[108:]),
		partial: Partial{Source: [16]byte(b[64:80]), PieceBytes: int64(le.Uint64(b[88:])), Hash: manifest.Algorithm(b[96])},
	}
	head := manifest.Header{Algorithm: h.partial.Hash, PieceBytes: h.partial.PieceBytes}
	if !fileset.IsTemp(name) || h.size < 0 || head.Check() != nil {
		return h, 0, errJournal
	}
	return h, seed, nil
}

// record is one record of a journal.
type record struct {
	kind  byte
	first uint64
	runs  []PieceRun
}

func (r *record) append(b []byte, seed uint64) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = append(b, r.kind, 0)
	b = le.AppendUint16(b, uint16(len(r.runs)))
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, r.first)
	for i := range r.runs {
		b = le.AppendUint64(b, r.runs[i].Pieces)
		b = append(b, r.runs[i].Digest[:]...)
	}
	return le.AppendUint64(b, xxh3.HashSeed(b[start:], seed))
}

// journalReader reads a journal's records, in order.
type journalReader struct {
	from *bufio.Reader
	seed uint64
	at   int64 // behind the last whole record
	buf  [recordHeader + maxRecordRuns*runBytes + journalSumBytes]byte
	runs [maxRecordRuns]PieceRun
}

// next reads a record, valid until the next call. The error is errJournal or io.EOF
// where the journal ends, or that of reading.
func (j *journalReader) next() (r record, err error) {
	le := binary.LittleEndian
	if _, err := io.ReadFull(j.from, j.buf[:recordHeader]); err != nil {
		return r, err
	}
	n := int(le.Uint16(j.buf[2:]))
	if n > maxRecordRuns {
		return r, errJournal
	}
	whole := recordHeader + n*runBytes
	if _, err := io.ReadFull(j.from, j.buf[recordHeader:whole+journalSumBytes]); err != nil {
		return r, err
	}
	if xxh3.HashSeed(j.buf[:whole], j.seed) != le.Uint64(j.buf[whole:]) {
		return r, errJournal
	}
	r = record{kind: j.buf[0], first: le.Uint64(j.buf[8:]), runs: j.runs[:n]}
	for i := range r.runs {
		p := j.buf[recordHeader+i*runBytes:]
		r.runs[i].Pieces = le.Uint64(p)
		copy(r.runs[i].Digest[:], p[8:runBytes])
	}
	j.at += int64(whole + journalSumBytes)
	return r, nil
}

// lastBoot returns what the last boot record of an open journal says, or zeros.
func lastBoot(fd int, seed uint64) (id [bootIDBytes]byte) {
	j := &journalReader{from: bufio.NewReaderSize(fsys.FDReader(fd).From(journalHeader), 64<<10), seed: seed, at: journalHeader}
	for {
		rec, err := j.next()
		if err != nil {
			return id // the journal was cut off here, or cannot be read
		}
		if rec.kind == recordBoot {
			id = rec.bootID()
		}
	}
}

// bootID is the id in a boot record, or zeros.
func (r *record) bootID() (id [bootIDBytes]byte) {
	if len(r.runs) == 1 {
		copy(id[:], r.runs[0].Digest[:])
	}
	return id
}

// openJournalFile opens a journal and reads its header. With ours, it must be one that
// only this user could have written.
func openJournalFile(dirfd int, name string, access int, ours bool) (fd int, h journalHead, seed uint64, err error) {
	fd, err = fsys.Openat(dirfd, name, access|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, h, 0, err
	}
	var st unix.Stat_t
	if err = fsys.Fstat(fd, &st); err == nil && (st.Mode&unix.S_IFMT != unix.S_IFREG || ours && (int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0)) {
		err = errStale
	}
	if err == nil {
		b := make([]byte, journalHeader)
		if _, err = io.ReadFull(fsys.FDReader(fd).From(0), b); err == nil {
			h, seed, err = decodeJournalHead(b)
		}
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return -1, h, 0, err
	}
	return fd, h, seed, nil
}

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
