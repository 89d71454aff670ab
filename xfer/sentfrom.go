package xfer

import (
	"errors"
	"sync"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// sentFrom has the regions of files that a source sends from as they are.
type sentFrom struct {
	session *session
	trial   regionTrial

	mu      sync.Mutex
	regions map[regionKey]*sentRegion
	idle    []*sentRegion // to be closed, by a worker
}

// regionKey names a region by its file and its place there, in regions.
type regionKey struct {
	entry uint64
	index int64
}

// sentRegion is a region of a file at the source.
type sentRegion struct {
	key regionKey
	// made is closed when the region is there, or could not be made: then it is nil.
	made   chan struct{}
	region *fileRegion
	// sentFrom.mu guards these. users are the chunks under way from there, and leftBytes
	// what no chunk has been made of. over says that most likely none will be.
	users     int
	leftBytes int64
	over      bool
}

func newSentFrom(s *session) *sentFrom {
	return &sentFrom{session: s, regions: make(map[regionKey]*sentRegion)}
}

// take returns the region that has all of a run, for one chunk, or nil. The caller has the
// file open, and gives the region back by leave. Blocks while pages are pinned.
func (f *sentFrom) take(run fileRun, file *chunker.File) *sentRegion {
	key := regionKey{run.entry.id, run.off / regionBytes}
	if !file.IsMappable() || (run.off+int64(run.bytes)-1)/regionBytes != key.index || !f.trial.pays(f.session, rdma.LocalRead, file.TrialMap) {
		return nil
	}
	f.mu.Lock()
	r, known := f.regions[key]
	if !known {
		f.passLocked(run)
		if len(f.regions) >= f.session.mostRegions() {
			f.mu.Unlock()
			return nil
		}
		r = &sentRegion{key: key, made: make(chan struct{}), leftBytes: min(regionBytes, run.entry.Size-key.index*regionBytes)}
		f.regions[key] = r
	}
	r.users++
	r.leftBytes -= int64(run.bytes)
	f.mu.Unlock()
	if !known {
		r.region = f.makeRegion(key, file)
		close(r.made)
	}
	<-r.made
	if r.region == nil {
		f.leave(r)
		return nil
	}
	return r
}

// passLocked lets go of the regions that lie behind a run. Where pieces are not sent, or chunks
// reach beyond their regions, those do not get used up. A chunk that was cut before the run and
// is not filled yet is no more than a ring behind it, because chunks leave in order.
func (f *sentFrom) passLocked(run fileRun) {
	for key, r := range f.regions {
		if key.entry == run.entry.id && (key.index+1)*regionBytes+f.session.ringBytes() <= run.off {
			r.over = true
			f.retireLocked(r)
		}
	}
}

// makeRegion maps and registers a part of a file, or returns nil. Where the kernel refuses it, it
// is not tried again.
func (f *sentFrom) makeRegion(key regionKey, file *chunker.File) *fileRegion {
	release, ok := f.session.reservePin(regionBytes)
	if !ok {
		return nil
	}
	defer release()
	m, err := file.Map(key.index*regionBytes, regionBytes)
	var r *fileRegion
	if err == nil {
		r, err = f.session.registerFile(m, rdma.LocalRead)
	}
	if err != nil {
		f.trial.off.Store(true)
	}
	return r
}

// leave gives a region back. It never blocks.
func (f *sentFrom) leave(r *sentRegion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.users--
	f.retireLocked(r)
}

// drop says that no more chunks are made of a file.
func (f *sentFrom) drop(e *srcEntry) {
	if f == nil || e.Size < largeBytes {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, r := range f.regions {
		if key.entry == e.id {
			r.over = true
			f.retireLocked(r)
		}
	}
}

func (f *sentFrom) retireLocked(r *sentRegion) {
	if r.users > 0 || (r.leftBytes > 0 && !r.over) || f.regions[r.key] != r {
		return
	}
	delete(f.regions, r.key)
	if r.region != nil {
		f.idle = append(f.idle, r)
	}
}

// tidy closes the regions that nobody uses any more. Blocks while pages are unpinned.
func (f *sentFrom) tidy() error {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	idle := f.idle
	f.idle = nil
	f.mu.Unlock()
	var errs []error
	for _, r := range idle {
		errs = append(errs, r.region.close())
	}
	return errors.Join(errs...)
}

// close closes all regions. The session's goroutines must have ended, and its queue pairs.
func (f *sentFrom) close() error {
	if f == nil {
		return nil
	}
	for _, r := range f.regions {
		if r.region != nil {
			f.idle = append(f.idle, r)
		}
	}
	f.regions = nil
	return f.tidy()
}

// fillFromFile makes the digests of a chunk's pieces where they lie in their file, if the file
// is in memory, and has the chunk sent from there. ok is false where the chunk is to be read
// into its slot. The end of a file is read, because a read tells whether the file goes on.
func (s *source) fillFromFile(t *turn, slot *outSlot) (ok bool) {
	c := &slot.chunk
	run, ok := c.runOf()
	if s.sentFrom == nil || !ok || run.entry.Size < largeBytes || run.entry.Stream || run.off+int64(run.bytes) >= run.entry.Size || run.entry.failed() != nil {
		return false
	}
	from := stat.Now()
	var region *sentRegion
	err := s.withFile(t, run.entry, func(file *chunker.File) error {
		if region = s.sentFrom.take(run, file); region != nil {
			file.NoteMapped(run.bytes)
		}
		return nil
	})
	from = s.diskSince(t, from) // it may have waited for the file's age
	if region == nil || err != nil {
		return false // reading the chunk tells why
	}
	slot.from = region
	mapping := region.region.mapping
	mem := mapping.At(run.off, run.bytes)
	err = mapping.Guard(func() {
		for i := range c.Extents {
			s.digested(c, i, s.digestOf(c, i, mem))
		}
	})
	s.session.spent(stat.Digests, from)
	if err != nil {
		s.failRead(run.entry, err)
	}
	for i := range c.Extents {
		s.doneReading(t, run.entry, &c.Extents[i])
	}
	c.Codec, c.StoredBytes = wire.CodecPlain, c.PlainBytes
	return true
}

// payloadLocked is the local memory that a chunk is sent from on a link. A chunk in a file
// that is not registered there, because the link came later, is copied to its slot.
func (o *chunkSender) payloadLocked(s *outSlot, l *railLink) (mr rdma.MR, offset int) {
	slotOff := s.index * o.session.link.ring.Stride()
	if s.from == nil {
		return l.payload, slotOff
	}
	region, first := s.from.region, s.chunk.Extents[0].Off
	if mr := region.mrOn(l); mr != nil {
		return mr, int(first - region.mapping.Off())
	}
	mem := region.mapping.At(first, int(s.chunk.StoredBytes))
	// Where the file was cut short meanwhile, what is sent has not the digest that was told.
	_ = region.mapping.Guard(func() { copy(o.session.link.ring.Slot(s.index), mem) })
	o.leaveFile(s)
	return l.payload, slotOff
}

// leaveFile ends a chunk's use of a file that it was sent from.
func (o *chunkSender) leaveFile(s *outSlot) {
	if s.from != nil {
		o.from.leave(s.from)
		s.from = nil
	}
}
