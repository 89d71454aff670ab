package tcp

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/rdma"
)

const (
	pageBytes = 4096
	// regionGrace is how long the Close of a region waits for accesses in
	// progress before it kills their connections.
	regionGrace = 100 * time.Millisecond
)

// region is a registered memory region.
type region struct {
	rail   *rail
	mem    []byte
	addr   uint64
	rkey   uint32
	access rdma.Access

	// state counts the accesses in progress, plus regionClosed.
	state atomic.Int64
	// idle is closed when regionClosed is set and no access is in progress.
	idle chan struct{}
}

// regionClosed is the bit of region.state that prevents further accesses.
const regionClosed = 1 << 62

var _ rdma.MR = (*region)(nil)

func (m *region) Addr() uint64 { return m.addr }
func (m *region) RKey() uint32 { return m.rkey }
func (m *region) Len() int     { return len(m.mem) }

// Relaxed is false, because the kernel copies the data.
func (m *region) Relaxed() bool { return false }

// slice returns part of the memory. The caller has checked the bounds. A nil region has
// no bytes.
func (m *region) slice(offset, lenBytes int) []byte {
	if m == nil {
		return nil
	}
	return m.mem[offset : offset+lenBytes]
}

// acquire begins an access to the memory, unless the region is closed.
func (m *region) acquire() bool {
	for {
		s := m.state.Load()
		if s&regionClosed != 0 {
			return false
		}
		if m.state.CompareAndSwap(s, s+1) {
			return true
		}
	}
}

// release ends an access.
func (m *region) release() {
	if m.state.Add(-1) == regionClosed {
		close(m.idle)
	}
}

// Close removes the key, then waits for the accesses in progress. A connection
// whose access is still in progress after regionGrace is killed: its peer may
// have stopped in the middle of a payload.
func (m *region) Close() error {
	m.rail.regions.remove(m)
	s := m.state.Or(regionClosed) // the previous state
	if s == 0 {
		close(m.idle)
		return nil
	}
	grace := time.NewTimer(regionGrace)
	defer grace.Stop()
	select {
	case <-m.idle:
		return nil
	case <-grace.C:
	}
	m.rail.killUsers(m)
	<-m.idle
	return nil
}

// regionTable holds the open regions of a rail.
type regionTable struct {
	mu     sync.RWMutex
	byRKey map[uint32]*region
}

// add gives m a key and a base address that are unguessable and unique among
// the open regions.
func (t *regionTable) add(m *region) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		var random [12]byte
		if _, err := rand.Read(random[:]); err != nil {
			return fmt.Errorf("read random bytes: %w", err)
		}
		m.rkey = binary.LittleEndian.Uint32(random[:])
		m.addr = binary.LittleEndian.Uint64(random[4:]) &^ (pageBytes - 1)
		if m.rkey != 0 && m.addr != 0 && t.byRKey[m.rkey] == nil && t.free(m.addr, len(m.mem)) {
			t.byRKey[m.rkey] = m
			return nil
		}
	}
}

// free reports whether n bytes at addr neither wrap around nor overlap.
func (t *regionTable) free(addr uint64, n int) bool {
	if addr > math.MaxUint64-uint64(n) {
		return false
	}
	for _, other := range t.byRKey {
		if addr < other.addr+uint64(len(other.mem)) && other.addr < addr+uint64(n) {
			return false
		}
	}
	return true
}

func (t *regionTable) remove(m *region) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byRKey[m.rkey] == m {
		delete(t.byRKey, m.rkey)
	}
}

// all returns the open regions.
func (t *regionTable) all() []*region {
	t.mu.RLock()
	defer t.mu.RUnlock()
	regions := make([]*region, 0, len(t.byRKey))
	for _, m := range t.byRKey {
		regions = append(regions, m)
	}
	return regions
}

// find returns the region that allows a remote access, and the offset of the
// access in it. If no region does, status is the reason.
func (t *regionTable) find(rkey uint32, addr uint64, n uint32, want rdma.Access) (m *region, offset int, status string) {
	t.mu.RLock()
	m = t.byRKey[rkey]
	t.mu.RUnlock()
	if m == nil {
		return nil, 0, "unknown key"
	}
	if m.access&want == 0 {
		return nil, 0, "the region does not grant it"
	}
	lenBytes := uint64(len(m.mem))
	// addr-m.addr cannot wrap after the first comparison, nor the last
	// subtraction after the second.
	if addr < m.addr || addr-m.addr > lenBytes || uint64(n) > lenBytes-(addr-m.addr) {
		return nil, 0, "outside of the region"
	}
	return m, int(addr - m.addr), ""
}
