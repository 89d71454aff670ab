package xfer

import (
	"slices"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

const (
	// DefaultTransfers is how many large files are under way at once, unless Options say
	// otherwise, and MaxTransfers the most that they may say.
	DefaultTransfers = 4
	MaxTransfers     = wire.MaxTransfers
	// largeBytes is the size from which on a file is cut beside others. It is several
	// chunks, and smaller ones are soon over.
	largeBytes = 16 << 20
)

// cutting says which files are being cut. Of large files several are, a chunk of each in
// turn, because many file systems read one file, or write it, at no more than a part of
// their rate: by one lock for each file, or by keeping it on one of many disks. The others
// are cut one after the other, as one more file that has its turn. The chunkSender's mu
// guards it.
type cutting struct {
	large []*srcEntry
	most  int // of large
	// Turn is the place in large of the file that the next extent comes from. Behind them
	// all is the turn of the small ones.
	turn int
}

// nextFileLocked returns the accepted file to cut next, or nil. It is the same file until
// the chunk ends (nextTurnLocked), or the file (pastFileLocked). It passes over entries
// without data, and over entries that the sink does not want or gave up before they were
// cut.
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

// frontLocked returns the first accepted file of which nothing was cut, or the small one
// that is being cut, or nil.
func (s *source) frontLocked() *srcEntry {
	for s.window.cut < s.window.accepted {
		if e := s.window.table[s.window.cut%entryWindow]; e.isCut(s.window.cut) {
			return e
		}
		s.window.cut++
	}
	return nil
}

// isCut reports whether data of the entry with an id is to be cut. e is what the window
// has in its place, or nil.
func (e *srcEntry) isCut(id uint64) bool {
	return e != nil && e.id == id && e.Type == manifest.File && !e.isLink() && !e.unwanted
}

// dropSettledLocked forgets large files that the sink has given up.
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

// dropLargeLocked ends the turns of a large file. The turn of the file behind it stays.
func (s *source) dropLargeLocked(i int) {
	c := &s.window.cutting
	c.large = slices.Delete(c.large, i, i+1)
	if i < c.turn {
		c.turn--
	}
}

// nextTurnLocked has the next chunk begin with another file than the one that the last
// extent of a chunk is of. Where that file has ended, another has its turn already.
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
