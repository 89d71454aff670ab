package flow

import (
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// The number of workers that wait for disks is bounded by the slots, by the memory that each needs,
// and by the sessions of a server.
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
		{"compressed", wire.Terms{Slots: 256, PieceBytes: 1 << 20, Codec: wire.CompressS2}, 0, min(all, least)},
		{"large pieces", wire.Terms{Slots: 256, PieceBytes: 64 << 20}, 0, min(all, least)},
		{"a server of many sessions", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 10_000, 1},
		{"a server of some", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 512, min(all, 8)},
		{"a server of few", wire.Terms{Slots: 256, PieceBytes: 1 << 20}, 2, all},
	} {
		s := &Session{Session: &link.Session{}, Terms: c.terms, SessionsAtOnce: c.most}
		if got := s.DiskWorkers(); got != c.want {
			t.Errorf("%s: %d workers, want %d", c.name, got, c.want)
		}
	}
}

// Parallel reads are bounded in the same way.
func TestReadsAtOnce(t *testing.T) {
	all := chunker.DiskWorkers()
	for _, c := range []struct {
		name           string
		pieceBytes     int64
		sessions, want int
	}{
		{"a client", 64 << 10, 0, all},
		{"large pieces", 64 << 20, 0, 1},
		{"a server", 64 << 10, 64, min(all, 32)},
		{"a server of many sessions", 64 << 10, 10_000, 1},
		{"of large pieces", 48 << 20, 64, 2},
	} {
		if got := ReadsAtOnce(&wire.Terms{PieceBytes: c.pieceBytes}, c.sessions); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
