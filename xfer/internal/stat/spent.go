package stat

import "time"

// Stage is one of the activities among which the time of a session is divided.
type Stage int

// The stages.
const (
	// Slots: a source waits until the sink returns slots.
	Slots Stage = iota
	// Wire: a source waits until the network accepts what it has posted. A sink waits for
	// chunks, whatever the source waits for.
	Wire
	// Disk: files are opened, read, written and closed, in the page cache or on the disk.
	Disk
	// Digests: digests are computed and compared.
	Digests
	// Sync: files and names are synced to the disk.
	Sync
	stages
)

// Spent is how much of a session's time each stage took. The time of concurrent workers is
// divided by their number. So no stage takes longer than the session, and one that takes
// nearly as long is the bottleneck. The sum may be less than the session's time, or more
// if stages overlap.
type Spent [stages]time.Duration

// epoch is the origin of Now.
var epoch = time.Now()

// Now reads the monotonic clock, in nanoseconds, for Spend. It is cheaper than time.Now,
// which also reads another clock.
func Now() int64 { return int64(time.Since(epoch)) }

// Spend adds the time that one of the given number of workers has spent since a reading of
// Now. It returns the current reading, which may be the start of the next stage.
func (c *Counters) Spend(s Stage, since int64, workers int) (now int64) {
	return c.SpendBy(1, s, since, workers)
}

// SpendBy is Spend for n of the workers.
func (c *Counters) SpendBy(n int, s Stage, since int64, workers int) (now int64) {
	now = Now()
	c.spentNs[s].Add((now - since) * int64(n) / int64(max(workers, 1)))
	return now
}

// AddSync adds to the time of Sync.
func (c *Counters) AddSync(d time.Duration) { c.spentNs[Sync].Add(int64(d)) }

// Spent returns what each stage took so far.
func (c *Counters) Spent() (s Spent) {
	for i := range s {
		s[i] = time.Duration(c.spentNs[i].Load())
	}
	return s
}
