package xfer

import (
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// Workers that wait for disks are bounded by slots, by what needs memory for each of them, and
// by how many sessions a server has.
func TestDiskWorkers(t *testing.T) {
	all, least := chunker.DiskWorkers(), max(chunker.Workers(), leastWorkers)
	for _, c := range []struct {
		name  string
		terms wire.Terms
		most  int // sessions
		want  int
	}{
		{"all", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 0, all},
		{"slots", wire.Terms{Slots: 3, PieceBytes: 1 << 20}, 0, 3},
		{"compressed", wire.Terms{Slots: 256, PieceBytes: 1 << 20, Codec: CompressS2}, 0, min(all, least)},
		{"large pieces", wire.Terms{Slots: 256, PieceBytes: 64 << 20}, 0, min(all, least)},
		{"a server of many sessions", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 10_000, min(all, leastWorkers)},
		{"a server of few", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 2, all},
	} {
		s := &session{terms: c.terms, sessionsAtOnce: c.most}
		if got := s.diskWorkers(); got != c.want {
			t.Errorf("%s: %d workers, want %d", c.name, got, c.want)
		}
	}
}
