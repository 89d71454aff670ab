package ring

import (
	"gdrcp/internal/numa"

	"golang.org/x/sys/unix"
)

// Share is a NUMA node with devices that carry the session, and how much of the slots it
// is to have.
type Share struct {
	Node *numa.Node // never nil
	Gbps float64    // of its devices; above 0
}

// part is a run of slots that are on one node.
type part struct {
	node     *numa.Node // nil where that does not matter
	from, to int
}

// partsOf divides slots by the rates of the nodes' devices, with at least one slot for
// each. Parts are runs of slots, so that they keep their huge pages. There are none where
// all slots are on one node.
func partsOf(shares []Share, slots, workers int) (parts []part) {
	if len(shares) < 2 || slots < len(shares) || workers < len(shares) {
		return nil
	}
	sum := 0.0
	for _, s := range shares {
		sum += s.Gbps
	}
	from, shared := 0, 0.0
	for i, s := range shares {
		shared += s.Gbps
		left := len(shares) - 1 - i
		to := min(max(int(shared/sum*float64(slots)+0.5), from+1), slots-left)
		parts = append(parts, part{s.Node, from, to})
		from = to
	}
	return parts
}

// all is the ring in parts: one, unless it is spread.
func (r *Ring) all() []part {
	if r.IsSpread() {
		return r.parts
	}
	return []part{{r.node, 0, r.Slots}}
}

// IsSpread reports whether the slots are on several nodes.
func (r *Ring) IsSpread() bool { return len(r.parts) > 0 }

// Nodes are the numbers of the nodes that the slots are on. There are none where that does
// not matter.
func (r *Ring) Nodes() (numbers []int) {
	for _, p := range r.all() {
		if p.node != nil {
			numbers = append(numbers, p.node.Number())
		}
	}
	return numbers
}

// NodeOf is the node of a slot, or nil where that does not matter.
func (r *Ring) NodeOf(slot int) *numa.Node {
	for _, p := range r.parts {
		if slot < p.to {
			return p.node
		}
	}
	return r.node
}

// SpreadTo is NodeOf of a ring that is spread, and nil of one that is not.
func (r *Ring) SpreadTo(slot int) *numa.Node {
	if !r.IsSpread() {
		return nil
	}
	return r.NodeOf(slot)
}

// NodeFor is the node for one of so many workers. A part of the slots has as much of the
// workers as it has of the slots.
func (r *Ring) NodeFor(worker, workers int) *numa.Node {
	return r.NodeOf((2*worker + 1) * r.Slots / (2 * workers))
}

// Near are the slots on a node, from one on, of a ring that is spread. n is 0 where there are
// none.
func (r *Ring) Near(node *numa.Node) (from, n int) {
	for _, p := range r.parts {
		if node != nil && p.node.Number() == node.Number() {
			return p.from, p.to - p.from
		}
	}
	return 0, 0
}

// mapSlots is Map of so many bytes for each slot, where the slot is to be.
func (r *Ring) mapSlots(slotBytes int) (b []byte, err error) {
	if b, err = Map(r.Slots * slotBytes); err != nil {
		return nil, err
	}
	for _, p := range r.all() {
		touchOn(p.node, b[p.from*slotBytes:p.to*slotBytes])
	}
	return b, nil
}

// mapNear is Map on the node of the ring's device.
func (r *Ring) mapNear(n int) (b []byte, err error) {
	if b, err = Map(n); err == nil {
		touchOn(r.node, b)
	}
	return b, err
}

// touchOn makes the pages of fresh memory on a node: a page comes from where the thread
// prefers it that touches it first.
func touchOn(n *numa.Node, b []byte) {
	if n == nil {
		return
	}
	_ = n.Prefer(func() error { // which returns no error of its own
		for at := 0; at < len(b); at += unix.Getpagesize() {
			b[at] = 0
		}
		return nil
	})
}
