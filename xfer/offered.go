package xfer

import (
	"fmt"
	"slices"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/wire"
)

// offeredRegions are the regions of files that the sink has told and chunks can still go to.
// Those of an entry are in the order of the file. The chunkSender's lock guards them.
type offeredRegions struct {
	byEntry map[uint64][]*offeredRegion
	count   int
}

// maxOffered bounds the regions that a source remembers. Of a file that has all its chunks they are
// forgotten when its end is told, for which it may wait behind thousands of others.
const maxOffered = 4096

// offeredRegion is a range of a file at the sink that chunks can go to.
type offeredRegion struct{ told wire.FileRegion }

func (r *offeredRegion) end() int64 { return r.told.Off + r.told.Bytes }

// number is the region's number, or 0 of a nil region.
func (r *offeredRegion) number() uint32 {
	if r == nil {
		return 0
	}
	return r.told.Number
}

// on is the region's place on a link's rail, or nil.
func (r *offeredRegion) on(l *railLink) *wire.RegionOn {
	for i := range r.told.On {
		if credit.Link(r.told.On[i].Link) == l.number {
			return &r.told.On[i]
		}
	}
	return nil
}

// placeOf is where the payload of a chunk in the region goes, over a link that the region is
// on.
func (r *offeredRegion) placeOf(c *outChunk, l *railLink) (addr uint64, key uint32) {
	on := r.on(l)
	return on.Addr + uint64(c.Extents[0].Off-r.told.Off), on.Key
}

// add takes a region, unless there are too many: chunks can go to slots.
func (o *offeredRegions) add(told wire.FileRegion) {
	if o.count >= maxOffered {
		return
	}
	if o.byEntry == nil {
		o.byEntry = make(map[uint64][]*offeredRegion)
	}
	list := o.byEntry[told.Entry]
	at, _ := slices.BinarySearchFunc(list, told.Off, func(r *offeredRegion, off int64) int { return int(min(max(r.told.Off-off, -1), 1)) })
	o.byEntry[told.Entry] = slices.Insert(list, at, &offeredRegion{told})
	o.count++
}

// forget drops the regions of an entry that has ended.
func (o *offeredRegions) forget(entry uint64) {
	o.count -= len(o.byEntry[entry])
	delete(o.byEntry, entry)
}

// of returns the region that all of a chunk goes to over a link, or nil. Chunks of a file come
// in its order, so it forgets the regions before.
func (o *offeredRegions) of(c *outChunk, l *railLink) *offeredRegion {
	if o.count == 0 {
		return nil
	}
	run, ok := c.runOf()
	if !ok || c.Codec != wire.CodecPlain {
		return nil
	}
	list := o.byEntry[run.entry.id]
	for len(list) > 0 && list[0].end() <= run.off {
		list = list[1:]
		o.count--
	}
	if len(list) == 0 {
		delete(o.byEntry, run.entry.id)
		return nil
	}
	o.byEntry[run.entry.id] = list
	if r := list[0]; run.off >= r.told.Off && run.off+int64(run.bytes) <= r.end() && r.on(l) != nil {
		return r
	}
	return nil
}

// hearRegion takes a region that the sink has registered. Of an entry that has ended it may
// come too late.
func (s *source) hearRegion(body []byte) error {
	r, err := wire.DecodeFileRegion(body)
	if err != nil {
		return err
	}
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	if r.Entry < s.window.settled {
		return nil
	}
	e := s.window.table[r.Entry%entryWindow]
	if !s.session.knowsRegions || !s.session.mayRegister() || r.Entry >= s.window.accepted || e == nil || e.Type != manifest.File || e.unwanted || r.Off > e.Size || r.Bytes > e.Size-r.Off {
		return fmt.Errorf("%w: a region of %d bytes at %d of entry %d, where none can be", ErrProtocol, r.Bytes, r.Off, r.Entry)
	}
	s.sender.offered.add(r)
	return nil
}
