package ring

import (
	"gdrcp/internal/numa"

	"golang.org/x/sys/unix"
)

// Share is a NUMA node with devices that carry the session, and its share of the slots.
type Share struct {
	Node *numa.Node // never nil
	Gbps float64    // total rate of its devices; above 0
}

// part is a range of slots on one node.
type part struct {
	node     *numa.Node // nil if the node does not matter
	from, to int
}

// partsOf divides the slots in proportion to the rates of the nodes' devices, with at
// least one slot for each. Parts are contiguous, so that they keep their huge pages. There
// are none if all slots are on one node.
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

// all returns the parts of the ring: a single one, unless it is spread.
func (r *Ring) all() []part {
	if r.IsSpread() {
		return r.parts
	}
	return []part{{r.node, 0, r.Slots}}
}

// IsSpread reports whether the slots are on several nodes.
func (r *Ring) IsSpread() bool { return len(r.parts) > 0 }

// Nodes returns the numbers of the nodes that the slots are on, or none if that does not
// matter.
func (r *Ring) Nodes() (numbers []int) {
	for _, p := range r.all() {
		if p.node != nil {
			numbers = append(numbers, p.node.Number())
		}
	}
	return numbers
}

// NodeOf returns the node of a slot, or nil if that does not matter.
func (r *Ring) NodeOf(slot int) *numa.Node {
	for _, p := range r.parts {
		if slot < p.to {
			return p.node
		}
	}
	return r.node
}

// SpreadTo is NodeOf for a ring that is spread, and nil otherwise.
func (r *Ring) SpreadTo(slot int) *numa.Node {
	if !r.IsSpread() {
		return nil
	}
	return r.NodeOf(slot)
}

// NodeFor returns the node for one of the given number of workers. Workers are divided
// among the parts in proportion to their slots.
func (r *Ring) NodeFor(worker, workers int) *numa.Node {
	return r.NodeOf((2*worker + 1) * r.Slots / (2 * workers))
}

// Near returns the range of slots on a node of a ring that is spread. n is 0 if there are
// none.
func (r *Ring) Near(node *numa.Node) (from, n int) {
	for _, p := range r.parts {
		if node != nil && p.node.Number() == node.Number() {
			return p.from, p.to - p.from
		}
	}
	return 0, 0
}

// mapSlots maps slotBytes for each slot, on the slot's node.
func (r *Ring) mapSlots(slotBytes int) (b []byte, err error) {
	if b, err = Map(r.Slots * slotBytes); err != nil {
		return nil, err
	}
	for _, p := range r.all() {
		touchOn(p.node, b[p.from*slotBytes:p.to*slotBytes])
	}
	return b, nil
}

// mapNear maps memory on the node of the ring's device.
func (r *Ring) mapNear(n int) (b []byte, err error) {
	if b, err = Map(n); err == nil {
		touchOn(r.node, b)
	}
	return b, err
}

// touchOn allocates the pages of fresh memory on a node: a page is allocated according to
// the policy of the thread that first touches it.
func touchOn(n *numa.Node, b []byte) {
	if n == nil {
		return
	}
	_ = n.Prefer(func() error { // it returns no error of its own
		for at := 0; at < len(b); at += unix.Getpagesize() {
			b[at] = 0
		}
		return nil
	})
}
