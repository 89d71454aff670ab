package ring

import (
	"slices"
	"testing"

	"gdrcp/internal/numa"
	"gdrcp/internal/numa/numatest"
)

// madeUpNodes returns the nodes of a fake machine.
func madeUpNodes(t *testing.T, n int) (nodes []*numa.Node) {
	t.Helper()
	sysfs := numatest.Sysfs(t, n)
	for i := range n {
		nodes = append(nodes, numa.Of(sysfs, i))
	}
	return nodes
}

func TestPartsFollowRates(t *testing.T) {
	nodes := madeUpNodes(t, 3)
	for _, c := range []struct {
		gbps           []float64
		slots, workers int
		want           []int // slots of each part
	}{
		{[]float64{400, 400}, 256, 8, []int{128, 128}},
		{[]float64{300, 100}, 16, 4, []int{12, 4}},
		{[]float64{1000, 1}, 16, 4, []int{15, 1}},
		{[]float64{1, 1000, 1}, 16, 4, []int{1, 14, 1}},
		{[]float64{1, 1, 1000}, 3, 3, []int{1, 1, 1}},
		{[]float64{100, 100, 100}, 16, 4, []int{5, 6, 5}},
		{[]float64{400}, 16, 4, nil},
		{[]float64{400, 400}, 1, 4, nil},  // a slot is on one node
		{[]float64{400, 400}, 16, 1, nil}, // so is a worker
		{nil, 16, 4, nil},
	} {
		var shares []Share
		for i, g := range c.gbps {
			shares = append(shares, Share{nodes[i], g})
		}
		var got []int
		from := 0
		for _, p := range partsOf(shares, c.slots, c.workers) {
			if p.from != from {
				t.Errorf("%v, %d slots: a part from %d, want %d", c.gbps, c.slots, p.from, from)
			}
			from = p.to
			got = append(got, p.to-p.from)
		}
		if !slices.Equal(got, c.want) || (got != nil && from != c.slots) {
			t.Errorf("%v, %d slots, %d workers: %v, want %v", c.gbps, c.slots, c.workers, got, c.want)
		}
	}
}

func TestSlotsAndWorkersOfParts(t *testing.T) {
	nodes := madeUpNodes(t, 2)
	r := &Ring{Slots: 16, SlotBytes: 1 << 20, node: nodes[1], parts: partsOf([]Share{{nodes[0], 300}, {nodes[1], 100}}, 16, 4)}
	for slot, want := range map[int]int{0: 0, 11: 0, 12: 1, 15: 1} {
		if got := r.NodeOf(slot).Number(); got != want {
			t.Errorf("slot %d is on node %d, want %d", slot, got, want)
		}
	}
	var workers []int
	for w := range 4 {
		workers = append(workers, r.NodeFor(w, 4).Number())
	}
	if want := []int{0, 0, 0, 1}; !slices.Equal(workers, want) {
		t.Errorf("workers on nodes %v, want %v", workers, want)
	}
	if from, n := r.Near(nodes[1]); from != 12 || n != 4 {
		t.Errorf("near node 1: %d slots from %d", n, from)
	}
	if from, n := r.Near(nil); from != 0 || n != 0 {
		t.Errorf("near no node: %d slots from %d", n, from)
	}
	if got := r.Nodes(); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("nodes %v", got)
	}
	alone := &Ring{Slots: 16, node: nodes[1]}
	if n := alone.NodeFor(0, 1); n != nodes[1] || alone.IsSpread() || !slices.Equal(alone.Nodes(), []int{1}) {
		t.Errorf("a ring on one node: a worker on %d, nodes %v", n.Number(), alone.Nodes())
	}
	if from, n := alone.Near(nodes[1]); from != 0 || n != 0 {
		t.Errorf("a ring on one node: %d slots near, from %d", n, from)
	}
}
