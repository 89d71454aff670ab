package stat

import (
	"sync/atomic"
	"time"
)

// Counters count what one copy, or one reading of a tree, has done so far. Any number
// of goroutines may count and read at once. No method blocks. The zero value is ready.
type Counters struct {
	started          atomic.Pointer[time.Time]
	bytes, wireBytes atomic.Int64
	files, repairs   atomic.Int64
	totalBytes       atomic.Int64
	totalKnown       atomic.Bool
	keptBytes        atomic.Int64
	movedBytes       atomic.Int64
	earlierBytes     atomic.Int64             // of the total, by earlier tries
	tries            atomic.Int64             // after the first
	before           atomic.Pointer[Progress] // of earlier tries, which this one goes on with
	resumableBytes   atomic.Int64
	firstByteNs      atomic.Int64
	steps            atomic.Int64
	startCPUNs       atomic.Int64 // plus one: 0 before the start
	spentNs          [stages]atomic.Int64
}

// Progress is how far a copy has come.
type Progress struct {
	Bytes      int64 // verified and written at the sink
	Files      int64 // that have ended well
	TotalBytes int64 // of all files found so far that are not kept; at least Bytes
	TotalKnown bool  // nothing more will be found
	// MovedBytes is what was verified and written in all tries, with what came twice. It is
	// what a rate is of.
	MovedBytes int64
	Tries      int64 // after the first
}

// Snapshot is a reading of all counters. Each counter is read by itself. A Snapshot
// that is taken while a copy runs may thus have the files of one moment and the bytes
// of the next.
type Snapshot struct {
	Progress
	// WireBytes is how many bytes the payload took on the wire.
	WireBytes int64
	// KeptBytes is the bytes of files that the destination already has. They are not
	// sent, and are not in TotalBytes.
	KeptBytes int64
	// ResumableBytes is how much has arrived, in this copy or earlier, of files that a
	// later copy can go on with.
	ResumableBytes int64
	// Repairs counts pieces and chunks that had to be sent again.
	Repairs int64
	// Steps counts everything that is progress.
	Steps int64
	// FirstByte is the time from the start to the first payload posted. It is 0 at a
	// sink, and in a sum.
	FirstByte time.Duration
}

// Start sets when the clock of FirstByte begins. The first call also sets from when on
// CPU counts.
func (c *Counters) Start(at time.Time) {
	c.started.Store(&at)
	c.startCPUNs.CompareAndSwap(0, int64(CPU())+1)
}

// CPU is the processor time that the process has taken since the first Start. It is 0
// before.
func (c *Counters) CPU() time.Duration {
	from := c.startCPUNs.Load()
	if from == 0 {
		return 0
	}
	return CPU() - time.Duration(from-1)
}

// Posted notes that payload was posted. Only the first call counts.
func (c *Counters) Posted() {
	if at := c.started.Load(); at != nil {
		c.firstByteNs.CompareAndSwap(0, int64(time.Since(*at)))
	}
}

// Step notes that the copy has moved on.
func (c *Counters) Step() { c.steps.Add(1) }

// Steps is how often the copy has moved on.
func (c *Counters) Steps() int64 { return c.steps.Load() }

// AddBytes counts bytes that are verified and written.
func (c *Counters) AddBytes(n int64) {
	c.bytes.Add(n)
	c.movedBytes.Add(n)
}

// AddEarlier counts bytes of the total that this try does not send, because an earlier one
// brought them, and AddKept counts them too.
func (c *Counters) AddEarlier(n int64) {
	c.bytes.Add(n)
	c.earlierBytes.Add(n)
}

// AddWireBytes counts the bytes that payload takes on the wire.
func (c *Counters) AddWireBytes(n int64) { c.wireBytes.Add(n) }

// AddFile counts a file that has ended well.
func (c *Counters) AddFile() { c.files.Add(1) }

// AddRepairs counts pieces and chunks that are to be sent again.
func (c *Counters) AddRepairs(n int64) { c.repairs.Add(n) }

// AddKept counts bytes of the total that are not sent, because the destination keeps
// its file.
func (c *Counters) AddKept(n int64) { c.keptBytes.Add(n) }

// AddResumable counts bytes that have arrived of files that a later copy can go on with.
func (c *Counters) AddResumable(n int64) { c.resumableBytes.Add(n) }

// AddTotal counts bytes that were found to copy.
func (c *Counters) AddTotal(n int64) { c.totalBytes.Add(n) }

// SetTotal sets how many bytes were found to copy so far.
func (c *Counters) SetTotal(n int64) { c.totalBytes.Store(n) }

// SetTotalKnown sets whether the total is final.
func (c *Counters) SetTotalKnown(known bool) { c.totalKnown.Store(known) }

// Again begins another try of the copy. Earlier tries have settled so many files, with so
// many bytes, which this try does not count again. What has travelled stays counted. With
// anew the try counts everything from the beginning. Otherwise a reading does not go back
// while this try finds again what is there.
func (c *Counters) Again(files, bytes int64, anew bool) {
	before := c.Read()
	if anew {
		c.before.Store(nil)
	} else {
		c.before.Store(&before) // first: readings go on meanwhile
	}
	c.bytes.Store(bytes)
	c.files.Store(files)
	c.earlierBytes.Store(bytes)
	c.totalBytes.Store(0)
	c.keptBytes.Store(0)
	c.totalKnown.Store(false)
	c.tries.Add(1)
}

// Read takes a reading of the progress. The total may be told later than what is a part of
// it, or by a peer that tells lies: then it is as much as has arrived.
func (c *Counters) Read() Progress {
	p := Progress{
		Bytes: c.bytes.Load(), Files: c.files.Load(), TotalKnown: c.totalKnown.Load(),
		MovedBytes: c.movedBytes.Load(), Tries: c.tries.Load(),
	}
	p.TotalBytes = c.earlierBytes.Load() + c.totalBytes.Load() - c.keptBytes.Load()
	if before := c.before.Load(); before != nil {
		p.Bytes, p.Files = max(p.Bytes, before.Bytes), max(p.Files, before.Files)
		switch {
		case before.TotalKnown && p.TotalKnown: // and what is kept may not be told yet
			p.TotalBytes = min(p.TotalBytes, before.TotalBytes)
		case !p.TotalKnown:
			p.TotalBytes, p.TotalKnown = max(p.TotalBytes, before.TotalBytes), before.TotalKnown
		}
	}
	p.TotalBytes = max(p.Bytes, p.TotalBytes)
	return p
}

// Set takes a reading that another process took of its own Counters.
func (c *Counters) Set(p Progress) {
	c.bytes.Store(p.Bytes)
	c.movedBytes.Store(p.MovedBytes)
	c.files.Store(p.Files)
	c.totalBytes.Store(p.TotalBytes)
	c.totalKnown.Store(p.TotalKnown)
}

// Snapshot takes a reading of everything.
func (c *Counters) Snapshot() Snapshot {
	return Snapshot{
		Progress: c.Read(), WireBytes: c.wireBytes.Load(), KeptBytes: c.keptBytes.Load(), ResumableBytes: c.resumableBytes.Load(), Repairs: c.repairs.Load(),
		Steps: c.steps.Load(), FirstByte: time.Duration(c.firstByteNs.Load()),
	}
}
