package stat

import (
	"sync/atomic"
	"time"
)

// Counters count what one copy, or one read of a tree, has done so far. They are safe for
// concurrent use. No method blocks. The zero value is ready to use.
type Counters struct {
	started          atomic.Pointer[time.Time]
	bytes, wireBytes atomic.Int64
	files, repairs   atomic.Int64
	totalBytes       atomic.Int64
	totalKnown       atomic.Bool
	keptBytes        atomic.Int64
	movedBytes       atomic.Int64
	earlierBytes     atomic.Int64             // of the total, transferred by earlier attempts
	tries            atomic.Int64             // after the first attempt
	before           atomic.Pointer[Progress] // progress of earlier attempts, which this one continues
	resumableBytes   atomic.Int64
	firstByteNs      atomic.Int64
	steps            atomic.Int64
	startCPUNs       atomic.Int64 // plus one: 0 before the start
	spentNs          [stages]atomic.Int64
}

// Progress is the progress of a copy.
type Progress struct {
	Bytes      int64 // verified and written at the sink
	Files      int64 // that have been copied successfully
	TotalBytes int64 // of all files found so far, except those that are kept; at least Bytes
	TotalKnown bool  // the total is final
	// MovedBytes counts bytes verified and written in all attempts, including repeated
	// ones. Rates are computed from it.
	MovedBytes int64
	Tries      int64 // after the first attempt
}

// Snapshot is a reading of all counters. Each counter is read separately, so a Snapshot
// that is taken while a copy runs may have the files of one moment and the bytes of the
// next.
type Snapshot struct {
	Progress
	// WireBytes is the number of payload bytes on the wire.
	WireBytes int64
	// KeptBytes is the size of the files that the destination already has. They are not
	// sent, and are not in TotalBytes.
	KeptBytes int64
	// ResumableBytes is how much has arrived, in this copy or earlier, of files that a
	// later copy can resume.
	ResumableBytes int64
	// Repairs counts pieces and chunks that had to be sent again.
	Repairs int64
	// Steps counts all signs of progress.
	Steps int64
	// FirstByte is the time from the start to the first payload posted. It is 0 at a
	// sink, and in a sum.
	FirstByte time.Duration
}

// Start starts the clock of FirstByte. The first call also starts that of CPU.
func (c *Counters) Start(at time.Time) {
	c.started.Store(&at)
	c.startCPUNs.CompareAndSwap(0, int64(CPU())+1)
}

// CPU returns the processor time that the process has used since the first Start, and 0
// before.
func (c *Counters) CPU() time.Duration {
	from := c.startCPUNs.Load()
	if from == 0 {
		return 0
	}
	return CPU() - time.Duration(from-1)
}

// Posted records that payload was posted. Only the first call has an effect.
func (c *Counters) Posted() {
	if at := c.started.Load(); at != nil {
		c.firstByteNs.CompareAndSwap(0, int64(time.Since(*at)))
	}
}

// Step records progress of the copy.
func (c *Counters) Step() { c.steps.Add(1) }

// Steps returns how often the copy has made progress.
func (c *Counters) Steps() int64 { return c.steps.Load() }

// AddBytes counts bytes that are verified and written.
func (c *Counters) AddBytes(n int64) {
	c.bytes.Add(n)
	c.movedBytes.Add(n)
}

// AddEarlier counts bytes of the total that this attempt does not send, because an earlier
// one transferred them, and that AddKept counts too.
func (c *Counters) AddEarlier(n int64) {
	c.bytes.Add(n)
	c.earlierBytes.Add(n)
}

// AddWireBytes counts payload bytes on the wire.
func (c *Counters) AddWireBytes(n int64) { c.wireBytes.Add(n) }

// AddFile counts a file that was copied successfully.
func (c *Counters) AddFile() { c.files.Add(1) }

// AddRepairs counts pieces and chunks that will be sent again.
func (c *Counters) AddRepairs(n int64) { c.repairs.Add(n) }

// AddKept counts bytes of the total that are not sent, because the destination keeps its
// own file.
func (c *Counters) AddKept(n int64) { c.keptBytes.Add(n) }

// AddResumable counts bytes that have arrived of files that a later copy can resume.
func (c *Counters) AddResumable(n int64) { c.resumableBytes.Add(n) }

// AddTotal counts bytes found to be copied.
func (c *Counters) AddTotal(n int64) { c.totalBytes.Add(n) }

// SetTotal sets how many bytes have been found to be copied so far.
func (c *Counters) SetTotal(n int64) { c.totalBytes.Store(n) }

// SetTotalKnown sets whether the total is final.
func (c *Counters) SetTotalKnown(known bool) { c.totalKnown.Store(known) }

// Again starts another attempt of the copy. files and bytes are those that earlier
// attempts have settled and that this one does not count again. Transferred bytes remain
// counted. With anew the attempt counts everything from zero. Otherwise readings do not
// decrease while this attempt finds again what exists.
func (c *Counters) Again(files, bytes int64, anew bool) {
	before := c.Read()
	if anew {
		c.before.Store(nil)
	} else {
		c.before.Store(&before) // first, because readings may be concurrent
	}
	c.bytes.Store(bytes)
	c.files.Store(files)
	c.earlierBytes.Store(bytes)
	c.totalBytes.Store(0)
	c.keptBytes.Store(0)
	c.totalKnown.Store(false)
	c.tries.Add(1)
}

// Read returns the progress. The total may be reported later than bytes that belong to it,
// or by a lying peer: then it is replaced by the number of bytes that have arrived.
func (c *Counters) Read() Progress {
	p := Progress{
		Bytes: c.bytes.Load(), Files: c.files.Load(), TotalKnown: c.totalKnown.Load(),
		MovedBytes: c.movedBytes.Load(), Tries: c.tries.Load(),
	}
	p.TotalBytes = c.earlierBytes.Load() + c.totalBytes.Load() - c.keptBytes.Load()
	if before := c.before.Load(); before != nil {
		p.Bytes, p.Files = max(p.Bytes, before.Bytes), max(p.Files, before.Files)
		switch {
		case before.TotalKnown && p.TotalKnown: // and the kept bytes may not be reported yet
			p.TotalBytes = min(p.TotalBytes, before.TotalBytes)
		case !p.TotalKnown:
			p.TotalBytes, p.TotalKnown = max(p.TotalBytes, before.TotalBytes), before.TotalKnown
		}
	}
	p.TotalBytes = max(p.Bytes, p.TotalBytes)
	return p
}

// Set stores a reading that another process took of its own Counters.
func (c *Counters) Set(p Progress) {
	c.bytes.Store(p.Bytes)
	c.movedBytes.Store(p.MovedBytes)
	c.files.Store(p.Files)
	c.totalBytes.Store(p.TotalBytes)
	c.totalKnown.Store(p.TotalKnown)
}

// Snapshot reads all counters.
func (c *Counters) Snapshot() Snapshot {
	return Snapshot{
		Progress: c.Read(), WireBytes: c.wireBytes.Load(), KeptBytes: c.keptBytes.Load(), ResumableBytes: c.resumableBytes.Load(), Repairs: c.repairs.Load(),
		Steps: c.steps.Load(), FirstByte: time.Duration(c.firstByteNs.Load()),
	}
}
