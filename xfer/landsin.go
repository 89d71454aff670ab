package xfer

import (
	"context"
	"errors"
	"sync"

	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// landsIn has the regions of files that a sink has told the source: chunks may land there
// without a slot's memory between.
//
// The source may write to a region until the region is closed. So a region is closed when
// all of its bytes have landed, in whatever way, and before the file is finished. What the
// source gives up lands nowhere: regions of such a file stay until the session ends, because
// a Write to a region that is gone would cost the link.
type landsIn struct {
	sink  *sink
	trial regionTrial

	mu      sync.Mutex
	regions map[uint32]*landRegion // by number, also those that are being made
	last    uint32
}

// landRegion is a region of a file at the sink.
type landRegion struct {
	entry  *sinkEntry
	number uint32
	off    int64 // in the file
	bytes  int64
	// landsIn.mu guards these. region is nil while it is made. leftBytes is what has not landed.
	region    *fileRegion
	leftBytes int64
}

// newLandsIn returns nil where a sink lands everything in slots. Where a manifest says or will
// say what arrived, the bytes that are published must be the very ones that were verified, and
// the source can still write to a region.
func newLandsIn(k *sink) *landsIn {
	if k.out != nil || !k.session.knowsRegions || !k.session.registersFiles() || k.results.vouches() {
		return nil
	}
	return &landsIn{sink: k, regions: make(map[uint32]*landRegion)}
}

// next reserves the next region of a file, if there is to be one. The end of a stream, and so of
// its regions, is known too late.
func (l *landsIn) next(e *sinkEntry) *landRegion {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over || e.ready || e.last || e.givenUp || e.noRegions || e.comparison.pieces > 0 || e.Sparse || e.Stream || e.Size < largeBytes || e.temp == nil || !e.temp.IsMappable() {
		return nil
	}
	if e.regionsTo == 0 {
		// The source has chunks in its ring that were cut before it can hear of a region.
		e.regionsTo = alignRegion(e.booked + l.sink.session.ringBytes())
	}
	off := max(e.regionsTo, alignRegion(e.booked))
	if off-e.booked > l.sink.session.aheadBytes() || off+regionBytes > e.Size {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.regions) >= l.sink.session.mostRegions() || l.last == wire.MaxRegions {
		return nil
	}
	l.last++
	e.regionsTo = off + regionBytes
	r := &landRegion{entry: e, number: l.last, off: off, bytes: regionBytes, leftBytes: regionBytes}
	l.regions[r.number] = r
	return r
}

func alignRegion(n int64) int64 { return (n + regionBytes - 1) / regionBytes * regionBytes }

// offer makes the next region of the file of an entry, if there is to be one, and tells the
// source. Blocks while pages are made and pinned.
func (l *landsIn) offer(ctx context.Context, t *turn, entry uint64) error {
	if l == nil || l.trial.off.Load() {
		return nil
	}
	e, err := l.sink.entry(entry)
	if err != nil || e == nil {
		return nil
	}
	r := l.next(e)
	if r == nil {
		return nil
	}
	t.take()
	from := stat.Now()
	told, err := l.makeRegion(r)
	l.sink.session.spent(stat.Disk, from)
	t.leave()
	if told == nil || err != nil {
		return err
	}
	return l.sink.session.ctl.send(ctx, wire.MsgRegion, told.Encode())
}

// makeRegion maps and registers a region. It returns nil where that is not possible, and where
// everything has landed in slots meanwhile: then the peer never hears of the region.
func (l *landsIn) makeRegion(r *landRegion) (told *wire.FileRegion, err error) {
	made := l.register(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.regions[r.number] != r {
		return nil, made.close()
	}
	if made == nil {
		delete(l.regions, r.number)
		return nil, nil
	}
	r.region = made
	told = &wire.FileRegion{Entry: r.entry.id, Number: r.number, Off: r.off, Bytes: r.bytes}
	for _, on := range made.on {
		told.On = append(told.On, wire.RegionOn{Link: uint32(on.link.number), Key: on.mr.RKey(), Addr: on.mr.Addr()})
	}
	return told, nil
}

// register returns nil where the file has no more regions, or the session.
func (l *landsIn) register(r *landRegion) *fileRegion {
	e := r.entry
	e.mu.Lock()
	temp := e.temp
	e.mu.Unlock()
	if temp == nil || !l.trial.pays(l.sink.session, sinkAccess, temp.TrialMap) {
		l.without(r, temp == nil || l.trial.off.Load())
		return nil
	}
	release, ok := l.sink.session.reservePin(r.bytes)
	if !ok {
		return nil
	}
	defer release()
	m, err := temp.Map(r.off, int(r.bytes))
	if err != nil {
		l.without(r, true) // as on a full disk, of which writing tells
		return nil
	}
	region, err := l.sink.session.registerFile(m, sinkAccess)
	if err != nil {
		l.trial.off.Store(true)
	}
	return region
}

// without gives back what was reserved for a region, until another worker has ended the trial, or
// gives up all further regions of its file. Others may have been reserved, and told, meanwhile.
func (l *landsIn) without(r *landRegion, forGood bool) {
	e := r.entry
	e.mu.Lock()
	defer e.mu.Unlock()
	e.noRegions = e.noRegions || forGood
	if !forGood && e.regionsTo == r.off+r.bytes {
		e.regionsTo = r.off
	}
}

// of returns the region in which a chunk says that it has landed. It is an error of the
// header, which may have been damaged, if that is not so.
func (l *landsIn) of(h *wire.ChunkHeader) (*landRegion, error) {
	if l == nil || len(h.Extents) == 0 || h.Codec != wire.CodecPlain || h.Repair {
		return nil, wire.ErrHeaderSum
	}
	l.mu.Lock()
	r := l.regions[h.Region]
	made := r != nil && r.region != nil
	l.mu.Unlock()
	first := &h.Extents[0]
	if !made || first.Entry != r.entry.id || first.SlotOff != 0 || first.Off < r.off || first.Off > r.off+r.bytes-int64(h.PlainBytes) {
		return nil, wire.ErrHeaderSum
	}
	for i := range h.Extents {
		if !inRun(&h.Extents[i], first) {
			return nil, wire.ErrHeaderSum
		}
	}
	return r, nil
}

// verified returns the bytes of a piece to write, and whether they match its digest.
func (w *lander) verified(h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent, data []byte) ([]byte, bool) {
	if w.sink.results.vouches() && h.Codec == wire.CodecPlain && w.sink.receiver.seals == nil {
		// The peer can still write to the slot. Where a manifest says, or will say,
		// what arrived, write the very bytes that were hashed.
		w.private = append(w.private[:0], data...)
		data = w.private
	}
	if r := w.chunk.region; r != nil {
		// What was cut off meanwhile is wanted again, and written.
		good := false
		err := r.region.mapping.Guard(func() { good = w.sink.session.terms.DigestOf(x, e.fileBytes(), data) == x.Digest })
		return data, good && err == nil
	}
	return data, w.sink.session.terms.DigestOf(x, e.fileBytes(), data) == x.Digest
}

// landed counts an extent that has landed, in a region or elsewhere. The worker that lands the
// last of a region closes it, before it counts the extent for the file: so no region is open
// when the file is finished.
func (l *landsIn) landed(e *sinkEntry, x *wire.Extent) error {
	if l == nil || e.Stream || e.Size < largeBytes || !e.takesData() {
		return nil // what was not booked may be in a region that others look at
	}
	var done []*fileRegion
	l.mu.Lock()
	for number, r := range l.regions {
		if r.entry != e {
			continue
		}
		r.leftBytes -= max(0, min(x.Off+x.Length, r.off+r.bytes)-max(x.Off, r.off))
		if r.leftBytes == 0 {
			delete(l.regions, number)
			done = append(done, r.region)
		}
	}
	l.mu.Unlock()
	var errs []error
	for _, r := range done {
		errs = append(errs, r.close())
	}
	return errors.Join(errs...)
}

// close closes all regions. The session's goroutines must have ended, and its queue pairs.
func (l *landsIn) close() error {
	if l == nil {
		return nil
	}
	var errs []error
	for _, r := range l.regions {
		errs = append(errs, r.region.close())
	}
	l.regions = nil
	return errors.Join(errs...)
}
