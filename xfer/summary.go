package xfer

import (
	"time"

	"gdrcp/xfer/internal/wire"
)

// summary returns the result of a session that began at since, and of the attempts before it.
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
