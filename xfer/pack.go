package xfer

import (
	"context"
	"fmt"
	"slices"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// extentAlign and pageAlign are the alignments of an extent's bytes in a slot: to a cache line, or
// from pageFrom bytes on to a page, if that helps the file system.
const (
	extentAlign = 64
	pageAlign   = 4096
	pageFrom    = 64 << 10
)

// pack cuts accepted entries into chunks and passes each to the workers in a source slot. Requests
// for a resend go first. pack returns when every entry has ended.
func (s *source) pack(ctx context.Context) error {
	defer close(s.jobs.Ready)
	if err := s.Session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	s.sender.FitRing()
	for {
		slot, err := s.nextJob(ctx)
		if slot == nil || err != nil {
			return err
		}
		s.jobs.Put(slot)
	}
}

// nextJob waits for a free slot and something to put into it. It returns nil when nothing more will
// come.
func (s *source) nextJob(ctx context.Context) (*outSlot, error) {
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if s.window.ended && s.window.settled == s.window.announced {
			return nil, nil
		}
		if len(s.sender.Free) > 0 && len(s.window.resends) > 0 {
			return s.resendLocked(), nil
		}
		if s.sender.RoomLocked() && s.nextFileLocked() != nil && s.stream.hasNextLocked() {
			slot := s.sender.TakeSlotLocked()
			// Cutting may have to look for holes. Do not do that under the lock.
			s.sender.Mu.Unlock()
			err := s.cutChunk(&slot.Chunk)
			s.sender.Mu.Lock()
			if err != nil {
				return nil, err
			}
			s.nextTurnLocked(&slot.Chunk)
			if len(slot.Chunk.Extents) > 0 {
				s.sender.NumberLocked(slot)
				return slot, nil
			}
			s.sender.Free = append(s.sender.Free, slot.Index)
			continue
		}
		s.sender.AwaitLocked(s.nextFileLocked() != nil && s.stream == nil)
	}
}

// resendLocked puts the oldest request for a resend into a slot.
func (s *source) resendLocked() *outSlot {
	r := s.window.resends[0]
	s.window.resends = s.window.resends[1:]
	slot := s.sender.TakeSlotLocked()
	c := &slot.Chunk
	c.ID, c.Repair, c.Again, c.Tries, c.HeaderTries = r.id, r.repair, true, r.tries, r.headerTries
	var used int64
	for i := range r.extents {
		x := r.extents[i]
		if x.Brings() {
			x.SlotOff = uint32(alignUp(used, x.Length))
			used = int64(x.SlotOff) + x.Length
		}
		c.Extents = append(c.Extents, x)
		c.Of.files = append(c.Of.files, r.files[i])
	}
	c.PlainBytes = uint32(used)
	return slot
}

// resendLater records what the sink requests again.
func (s *source) resendLater(c *outChunk, r *wire.ReturnedSlot) error {
	w := &resend{id: c.ID, repair: c.Repair, tries: c.Tries}
	var different []int
	bad := r.Bad
	if r.Again {
		w.headerTries = c.HeaderTries + 1
		w.extents = append(w.extents, c.Extents...)
		w.files = append(w.files, c.Of.files...)
		s.tally.AddRepairs(1) // as the sink counts
	} else {
		w.repair = true
		w.tries++
		if len(bad) < len(c.Extents) {
			w.tries = 1 // something of it has arrived: the rest has its own attempts
		}
		for i := range c.Extents {
			if len(bad) == 0 || int(bad[0]) != i {
				s.arrivedExtent(c.Of.files[i], &c.Extents[i])
				continue
			}
			bad = bad[1:]
			if differs(c, i, &s.Session.Terms) {
				different = append(different, i)
				continue
			}
			if !c.Extents[i].Brings() {
				return fmt.Errorf("%w: what was not sent is wanted again", ErrProtocol)
			}
			w.extents = append(w.extents, c.Extents[i])
			w.files = append(w.files, c.Of.files[i])
		}
		s.tally.AddRepairs(int64(len(w.extents)))
		s.tally.AddWireBytes(int64(c.StoredBytes)) // all of it has arrived, though not all intact
		s.resendDifferent(c, different)
	}
	if len(w.extents) > 0 {
		s.window.resends = append(s.window.resends, w)
	}
	s.sender.Cond.Broadcast()
	return nil
}

// resendMoved sends again a chunk that was lost with its link.
func (s *source) resendMoved(c *outChunk) {
	s.window.resends = append(s.window.resends, &resend{
		id: c.ID, repair: c.Repair, tries: c.Tries, headerTries: c.HeaderTries, extents: slices.Clone(c.Extents), files: slices.Clone(c.Of.files),
	})
}

// alignUp is the first place at or after used at which an extent of n bytes may begin in a slot.
func alignUp(used, n int64) int64 {
	a := int64(extentAlign)
	if n >= pageFrom {
		a = pageAlign
	}
	return (used + a - 1) &^ (a - 1)
}

// cutChunk fills a chunk with extents of the next accepted entries.
func (s *source) cutChunk(c *outChunk) error {
	if s.stream != nil {
		s.cutStream(c)
		return nil
	}
	room := int64(s.Session.Terms.ChunkBytes)
	used, dear, read := int64(0), int64(0), int64(0)
	for len(c.Extents) < wire.MaxExtents {
		e := s.nextFile()
		if e == nil {
			break
		}
		x := wire.Extent{Entry: e.id, Off: e.packed}
		if e.failed() != nil {
			// Read no more of the entry: one extent announces its end to the sink.
			x.Flags, e.packed = wire.ExtLast, e.Size
		} else {
			length, flags := s.nextExtent(e)
			x.Length, x.Flags = s.asDigest(e, length, flags)
		}
		if dear += holeHashCost(&s.Session.Terms, &x); dear > maxHashedHolePieces(&s.Session.Terms) {
			break
		}
		if read += comparedBytes(&x); read > maxComparedBytes(&s.Session.Terms) {
			break
		}
		if x.Brings() {
			at := alignUp(used, x.Length)
			if at+x.Length > room {
				if used == 0 {
					return fmt.Errorf("extent of %d bytes in a chunk of %d", x.Length, room)
				}
				break
			}
			x.SlotOff = uint32(at)
			used = at + x.Length
		}
		e.packed += x.Length
		if e.packed == e.Size {
			x.Flags |= wire.ExtLast
			s.pastFile(e)
		}
		c.Extents = append(c.Extents, x)
		c.Of.files = append(c.Of.files, e)
	}
	c.PlainBytes = uint32(used)
	return nil
}

// nextExtent returns the length and kind of the next extent of a file: one piece, a run of pieces
// that are holes, or the pieces that an earlier copy left at the sink.
func (s *source) nextExtent(e *srcEntry) (length int64, flags uint16) {
	piece := s.Session.Terms.PieceBytes
	left := e.Size - e.packed
	if e.packed < e.arrived.bytes {
		return e.arrived.bytes - e.packed, wire.ExtArrived
	}
	if !e.Sparse || e.Size <= piece {
		// The sink makes the holes in such a file by itself.
		return min(piece, left), 0
	}
	start := e.packed
	err := s.withFile(nil, e, func(f *chunker.File) (err error) {
		start, err = f.DataFrom(e.packed, e.Size)
		return err
	})
	if err != nil {
		// The worker meets the same error, or reads what is there.
		return min(piece, left), 0
	}
	hole := start - e.packed
	if start < e.Size {
		hole -= hole % piece
	}
	if hole < piece && hole < left {
		return min(piece, left), 0
	}
	hole = min(hole, longestHole(&s.Session.Terms)*piece)
	if hole == e.Size {
		// Nothing more of it is read, and a chunk has many such files.
		err := e.checkShared()
		e.closeFile()
		if err != nil {
			return min(piece, left), 0
		}
	}
	return hole, wire.ExtHole
}
