package stat

import "time"

// Stage is what the time of a session goes to.
type Stage int

// The stages.
const (
	// Slots: a source waits until the sink gives slots back.
	Slots Stage = iota
	// Wire: a source waits until the network takes what it has posted. A sink waits for
	// chunks, whatever they wait for at the other end.
	Wire
	// Disk: files are opened, read, written and closed, in the kernel's memory or on the
	// disk.
	Disk
	// Digests are made and compared.
	Digests
	// Sync: files and names are brought to the disk.
	Sync
	stages
)

// Spent is how much of a session's time each stage took. The time of workers beside each
// other is divided by their number. So no stage takes more than the session, and one that
// takes nearly as long holds the session up. What all take together may be less, and with
// work beside each other more.
type Spent [stages]time.Duration

// epoch is where Now counts from. It does not change.
var epoch = time.Now()

// Now is a reading of the monotonic clock, in nanoseconds, for Spend. It is cheaper than
// time.Now, which reads another clock too.
func Now() int64 { return int64(time.Since(epoch)) }

// Spend adds time that one of a number of workers spent since a reading of Now. It returns
// the reading at the end, which may be where the next stage begins.
func (c *Counters) Spend(s Stage, since int64, workers int) (now int64) {
	return c.SpendBy(1, s, since, workers)
}

// SpendBy is Spend for n of the workers at once.
func (c *Counters) SpendBy(n int, s Stage, since int64, workers int) (now int64) {
	now = Now()
	c.spentNs[s].Add((now - since) * int64(n) / int64(max(workers, 1)))
	return now
}

// AddSync adds to the time of Sync.
func (c *Counters) AddSync(d time.Duration) { c.spentNs[Sync].Add(int64(d)) }

// Spent reads what each stage took so far.
func (c *Counters) Spent() (s Spent) {
	for i := range s {
		s[i] = time.Duration(c.spentNs[i].Load())
	}
	return s
}
