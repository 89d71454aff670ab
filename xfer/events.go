package xfer

import (
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
	"time"
)

// Event is something that happened in a session.
type Event = result.Event

// EventKind says what an Event reports.
type EventKind = result.EventKind

// The kinds of events.
const (
	EventConnected  = result.EventConnected
	EventFile       = result.EventFile
	EventMemory     = result.EventMemory
	EventWaiting    = result.EventWaiting
	EventDeleted    = result.EventDeleted
	EventPlaced     = result.EventPlaced
	EventRailLost   = result.EventRailLost
	EventRailJoined = result.EventRailJoined
	EventRailUnused = result.EventRailUnused
	EventRing       = result.EventRing
	EventWarning    = result.EventWarning
	EventAfresh     = result.EventAfresh
)

// Place says what the paths of a copy's entries are relative to.
type Place = result.Place

// End is one of the two ends of a session, as the reporting end sees them.
type End = result.End

// The ends.
const (
	NoEnd    = result.NoEnd
	ThisEnd  = result.ThisEnd
	OtherEnd = result.OtherEnd
)

// Link describes what carries a session.
type Link = result.Link

// Summary is the result of a session.
type Summary = result.Summary

// RailUse is a copy's use of one rail.
type RailUse = result.RailUse

// Tally counts what a session has done so far. It may be read while the session runs.
type Tally = stat.Counters

// Progress is a reading of a Tally.
type Progress = stat.Progress

func (a *copyResults) summary(t *Tally, p *wire.Terms, link Link, since time.Time) *Summary {
	r, counted := a.finish(), t.Snapshot()
	a.mu.Lock()
	defer a.mu.Unlock()
	r, since = a.tries.total(r), a.tries.since(since)
	of := func(o Outcome) int64 { return a.booked.counts[o] + a.refused.counts[o] + a.late[o] }
	sum := &Summary{
		Link: link, Local: wire.HostMemory(""), Remote: wire.HostMemory(""), Content: r.Content, Meta: r.Meta, Hash: p.Hash, PieceBytes: p.PieceBytes,
		Files: a.booked.counts[Copied], Dirs: a.booked.dirs, Links: a.booked.links, Bytes: int64(r.Bytes) - a.booked.trustedBytes, WireBytes: counted.WireBytes, Repairs: counted.Repairs,
		Unchanged: a.booked.unchanged, UnchangedBytes: a.booked.unchangedBytes, ResumedBytes: a.booked.resumedBytes, ComparedBytes: a.booked.compared.digestBytes,
		Trusted: a.booked.trusted, TrustedBytes: a.booked.trustedBytes,
		SkippedBytes: a.booked.skippedBytes, SameBytes: a.booked.compared.sameBytes(), SentBytes: a.booked.sentBytes,
		Seconds: time.Since(since).Seconds(), FirstByte: counted.FirstByte,
		Skipped: of(Skipped), Failed: of(Failed), Changed: of(Changed), Corrupt: of(Corrupt),
		Missing: a.refused.missing, Verified: a.verified, Retries: a.tries.retries(),
		Grown: a.booked.grown, Kept: of(Kept) - a.booked.leftOut, LeftOut: a.booked.leftOut, Deleted: a.deletes.deleted, DeletedAtLeast: a.deletes.uncounted, NotDeleted: a.deletes.notDeleted, DryRun: a.dry, Withheld: a.withheld,
		Read: a.read, Written: a.written, Unkept: a.unkept.WithEarlier(a.tries.unkeptEarlier()),
	}
	if a.dry {
		sum.Bytes, sum.SentBytes, sum.SameBytes, sum.ComparedBytes = a.booked.dryBytes, 0, 0, 0
	}
	return sum
}

// Timeouts bound how long a peer may keep a session waiting.
type Timeouts = link.Timeouts

// DefaultTimeouts returns timeouts for real networks.
func DefaultTimeouts() Timeouts { return link.DefaultTimeouts() }

// AbortWait is the longest time that an end that fails or is stopped takes to send its abort.
const AbortWait = link.AbortWait

// Cost is the cost of a copy, or a bench, at one end.
type Cost = wire.Cost
