package xfer

import (
	"encoding/binary"
	"fmt"
	"os"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// pieceSpill keeps the digests of files with several names until their last name is in the manifest
// that is being written. It keeps them in a temporary file, because a file may have any number of
// pieces. Its user holds a lock.
type pieceSpill struct {
	file *os.File // nil until needed; it has no name
	size int64    // bytes
	buf  []byte
}

// spilledPieces is the place of one file's runs, which are contiguous.
type spilledPieces struct{ start, end int64 }

// spilledRunBytes is the length of a run: its count, little-endian, and its digest.
const (
	spilledRunBytes = 8 + len(manifest.Digest{})
	spillBufferRuns = 1024
)

// add appends runs to those of the file that was begun last.
func (s *pieceSpill) add(p *spilledPieces, runs []pieceRun) error {
	if s.file == nil {
		file, err := fsys.OpenUnlinked(os.TempDir())
		if err != nil {
			return fmt.Errorf("make temporary file for the digests of files with several names: %w", err)
		}
		s.file = file
	}
	if p.end == 0 {
		p.start = s.size
	}
	s.buf = s.buf[:0]
	for i := range runs {
		s.buf = binary.LittleEndian.AppendUint64(s.buf, runs[i].n)
		s.buf = append(s.buf, runs[i].digest[:]...)
	}
	if _, err := s.file.WriteAt(s.buf, s.size); err != nil {
		return fmt.Errorf("keep the digests of a file with several names: %w", err)
	}
	s.size += int64(len(s.buf))
	p.end = s.size
	return nil
}

// each calls use with every run of a file, in order.
func (s *pieceSpill) each(p *spilledPieces, use func(pieceRun) error) error {
	block := make([]byte, spillBufferRuns*spilledRunBytes)
	for at := p.start; at < p.end; {
		block = block[:min(int64(cap(block)), p.end-at)]
		if _, err := s.file.ReadAt(block, at); err != nil {
			return fmt.Errorf("read the digests of a file with several names: %w", err)
		}
		at += int64(len(block))
		for b := block; len(b) > 0; b = b[spilledRunBytes:] {
			r := pieceRun{digest: manifest.Digest(b[8:spilledRunBytes]), n: binary.LittleEndian.Uint64(b)}
			if err := use(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *pieceSpill) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
