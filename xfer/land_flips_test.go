package xfer_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
	"gdrcp/xfer/internal/wire"
)

// flipGap is the least number of chunks between two that are damaged. With two slots a chunk that
// is sent again goes before that many others, so no chunk is damaged twice.
const flipGap = 6

// flipper flips one bit in some of the chunks of a copy, in the memory of one end or on the way.
type flipper struct {
	mu  sync.Mutex
	rng *rand.Rand
	// rings are the registrations of the end for this copy: its payload slots, then its header
	// slots.
	rings           [][]byte
	chunks, due     int
	flipped, wanted int
}

// begin prepares the flipper for another copy.
func (f *flipper) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rings, f.flipped, f.chunks, f.due = nil, 0, 0, 1
}

// register records the memory of a registered ring.
func (f *flipper) register(what rdma.Region, _ rdma.Access) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rings = append(f.rings, what.Mem)
	return nil
}

// turnLocked reports whether it is this chunk's turn.
func (f *flipper) turnLocked() bool {
	f.chunks++
	if f.chunks < f.due || f.wanted == 0 {
		return false
	}
	f.due = f.chunks + flipGap + f.rng.IntN(3)
	f.flipped++
	f.wanted--
	return true
}

// flipLocked flips one bit of n bytes of a ring.
func (f *flipper) flipLocked(ring, from, n int) {
	f.rings[ring][from+f.rng.IntN(n)] ^= 1 << f.rng.IntN(8)
}

// inSourceSlot damages a payload in the source's slot, after its digest.
func (f *flipper) inSourceSlot(p rdmatest.Posted) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if isPayload(p) && f.turnLocked() {
		f.flipLocked(0, p.WR.Offset, p.WR.Len)
	}
	return 0, false
}

// onTheWay damages a payload in transit.
func (f *flipper) onTheWay(p rdmatest.Posted) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !isPayload(p) || !f.turnLocked() {
		return 0, false
	}
	return f.rng.IntN(p.WR.Len), true
}

// inPlacement damages the offset or the length of the first extent in a header, in the
// source's header slot.
func (f *flipper) inPlacement(p rdmatest.Posted) (int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if isHeader(p) && f.turnLocked() {
		f.flipLocked(1, p.WR.Offset+wire.HopBytes+wire.BareChunkBytes+8, 16)
	}
	return 0, false
}

// inSinkSlot damages a payload in the sink's slot, before the sink knows that it has arrived. Every
// payload fills its slot.
func (f *flipper) inSinkSlot(c rdma.Completion) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Kind == rdma.Immediate && f.turnLocked() {
		slot, _ := wire.SplitImmediate(c.Imm)
		f.flipLocked(0, slot*xfer.DefaultChunkBytes, xfer.DefaultChunkBytes)
	}
	return 0
}

// flipCount is how many bits are flipped in each place.
func flipCount(w way) int {
	full := os.Getenv("GDRCP_TEST_FULL") == "1"
	switch {
	case w.slow > 1 && full:
		return 40
	case w.slow > 1:
		return 2
	case full:
		return 1000
	case testing.Short():
		return 5
	}
	return 30
}

// TestEveryFlippedBitIsFound flips bits in a copy's memory and on the way: each is found, the chunk
// is sent again, and the right bytes arrive. GDRCP_TEST_FULL=1 flips 1000 in each place.
func TestEveryFlippedBitIsFound(t *testing.T) { over(t, testEveryFlippedBitIsFound) }

func testEveryFlippedBitIsFound(t *testing.T, w way) {
	for _, place := range []struct {
		name         string
		source, sink func(f *flipper) rdmatest.Faults
	}{
		{"in the source's slot", func(f *flipper) rdmatest.Faults {
			return rdmatest.Faults{Register: f.register, Corrupt: f.inSourceSlot}
		}, nil},
		{"on the way", func(f *flipper) rdmatest.Faults { return rdmatest.Faults{Corrupt: f.onTheWay} }, nil},
		{"in the offset or length of a header", func(f *flipper) rdmatest.Faults {
			return rdmatest.Faults{Register: f.register, Corrupt: f.inPlacement}
		}, nil},
		{"in the sink's slot", nil, func(f *flipper) rdmatest.Faults {
			return rdmatest.Faults{Register: f.register, Delay: f.inSinkSlot}
		}},
	} {
		t.Run(place.name, func(t *testing.T) {
			if w.slow > 1 {
				// Over an emulated device copies are slow.
				if !rdmatest.InSample(t.Name()) {
					t.Skip("is not in the sample of " + rdmatest.Seed)
				}
			}
			h := fnv.New64a()
			fmt.Fprint(h, os.Getenv(rdmatest.Seed), t.Name())
			f := &flipper{rng: rand.New(rand.NewPCG(h.Sum64(), 1)), wanted: flipCount(w)}
			var source, sink rdmatest.Faults
			if place.source != nil {
				source = place.source(f)
			} else {
				sink = place.sink(f)
			}
			for n := 0; f.wanted > 0; n++ {
				flippedCopies(t, w, f, n%2 == 0, source, sink)
			}
		})
	}
}

// flippedCopies copies a file while f flips bits, by each kind of session.
func flippedCopies(t *testing.T, w way, f *flipper, push bool, source, sink rdmatest.Faults) {
	at, client := w, source
	if push {
		at.provider = rdmatest.Faulty(w.provider, sink)
	} else {
		at.provider, client = rdmatest.Faulty(w.provider, source), sink
	}
	s, here := serve(t, at), t.TempDir()
	from, to := here, s.root
	if !push {
		from, to = to, from
	}
	kinds, pieces := []func(o *xfer.Options){
		func(*xfer.Options) {},
		func(o *xfer.Options) { o.Hash = manifest.BLAKE3 },
		func(o *xfer.Options) { o.Encrypt = true },
		func(o *xfer.Options) { o.Hash, o.QPs = manifest.CRC32C, 2 },
	}, 24
	if w.slow > 1 {
		kinds, pieces = kinds[:1], 10
	}
	write(t, filepath.Join(from, "f"), randomBytes(t, pieces*xfer.DefaultChunkBytes))
	sessions := 0
	for _, kind := range kinds {
		f.begin()
		o := w.options(t)
		o.Slots = 2
		kind(&o)
		var sum *xfer.Summary
		var err error
		if push {
			sum, err = w.client(client).Push(t.Context(), []string{filepath.Join(from, "f")}, s.ep, "copy", o)
		} else {
			sum, err = w.client(client).Pull(t.Context(), s.ep, []string{"f"}, filepath.Join(to, "copy"), o)
		}
		if err != nil {
			t.Fatal(err)
		}
		sessions++
		if end := s.lastEnd(t, sessions); push {
			sum = end.Summary
		}
		if sum.Repairs != int64(f.flipped) || sum.Corrupt != 0 || !sum.Verified {
			t.Errorf("%d bits were turned over, and %d found: %+v", f.flipped, sum.Repairs, sum)
		}
		if !sameFile(t, filepath.Join(from, "f"), filepath.Join(to, "copy"), new([2][64 << 10]byte)) {
			t.Error("another file arrived")
		}
	}
}
