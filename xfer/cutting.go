package xfer

import (
	"slices"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

const (
	// DefaultTransfers is how many large files are in progress in parallel, unless Options say
	// otherwise, and MaxTransfers the most that they may ask for.
	DefaultTransfers = 4
	MaxTransfers     = wire.MaxTransfers
	// largeBytes is the size from which files are cut in parallel. It is several chunks: smaller
	// files are soon finished.
	largeBytes = 16 << 20
)

// cutting records which files are being cut. Several large files are cut in parallel, a chunk of
// each in turn, because many file systems read or write one file at only a part of their rate:
// because of a lock for each file, or because the file is on one of many disks. The other files are
// cut one by one, and together take one turn. The Sender's lock guards it.
type cutting struct {
	large []*srcEntry
	most  int // length limit of large
	// turn is the index in large of the file for the next extent. The small files' turn follows
	// after the last.
	turn int
}

// nextFileLocked returns the accepted file to cut next, or nil. It returns the same file until the
// chunk ends (nextTurnLocked) or the file ends (pastFileLocked). It skips entries without data, and
// entries that the sink does not want or gave up before they were cut.
func (s *source) nextFileLocked() *srcEntry {
	c := &s.window.cutting
	s.dropSettledLocked()
	front := s.frontLocked()
	for front != nil && front.Size >= largeBytes && len(c.large) < c.most {
		if len(c.large) == 0 {
			c.turn = 0 // in the order of entries
		}
		c.large = append(c.large, front)
		s.window.cut++
		front = s.frontLocked()
	}
	if front != nil && (front.Size >= largeBytes || c.most == 1 && len(c.large) > 0) {
		front = nil // it waits until one of the others has ended
	}
	if c.turn > len(c.large) || c.turn == len(c.large) && front == nil {
		c.turn = 0
	}
	if c.turn < len(c.large) {
		return c.large[c.turn]
	}
	return front
}

// frontLocked returns the first accepted file of which nothing was cut, or the small file that is
// being cut, or nil.
func (s *source) frontLocked() *srcEntry {
	for s.window.cut < s.window.accepted {
		if e := s.window.table[s.window.cut%entryWindow]; e.isCut(s.window.cut) {
			return e
		}
		s.window.cut++
	}
	return nil
}

// isCut reports whether data of the entry with an id is still to be cut. e is the window's entry in
// its place, or nil.
func (e *srcEntry) isCut(id uint64) bool {
	return e != nil && e.id == id && e.Type == manifest.File && !e.isLink() && !e.unwanted
}

// dropSettledLocked drops large files that the sink has given up.
func (s *source) dropSettledLocked() {
	c := &s.window.cutting
	for i := 0; i < len(c.large); {
		if e := c.large[i]; s.window.table[e.id%entryWindow].isCut(e.id) {
			i++
			continue
		}
		s.dropLargeLocked(i)
	}
}

// dropLargeLocked ends the turns of a large file. The next file keeps its turn.
func (s *source) dropLargeLocked(i int) {
	c := &s.window.cutting
	c.large = slices.Delete(c.large, i, i+1)
	if i < c.turn {
		c.turn--
	}
}

// nextTurnLocked makes the next chunk begin with a file other than that of the last extent of a
// chunk. If that file has ended, another has its turn already.
func (s *source) nextTurnLocked(c *outChunk) {
	if len(c.Of.files) == 0 {
		return
	}
	last, w := c.Of.files[len(c.Of.files)-1], &s.window.cutting
	small := w.turn == len(w.large) && last.Size < largeBytes
	if small || w.turn < len(w.large) && w.large[w.turn] == last {
		w.turn++
	}
}

func (s *source) nextFile() *srcEntry {
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	return s.nextFileLocked()
}

// pastFileLocked ends the cutting of a file that nextFileLocked returned.
func (s *source) pastFileLocked(e *srcEntry) {
	if i := slices.Index(s.window.cutting.large, e); i >= 0 {
		s.dropLargeLocked(i)
		return
	}
	s.window.cut++
}

func (s *source) pastFile(e *srcEntry) {
	s.sender.Mu.Lock()
	s.pastFileLocked(e)
	s.sender.Mu.Unlock()
}
