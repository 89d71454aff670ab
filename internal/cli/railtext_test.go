package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"gdrcp/xfer"
)

func TestWhereSlotsAre(t *testing.T) {
	for _, c := range []struct {
		nodes []int
		rails []xfer.RailUse
		want  string
	}{
		{nil, nil, ""},
		{[]int{1}, nil, "slots here: on NUMA node 1"},
		{[]int{0, 1}, nil, "slots here: on NUMA nodes 0 and 1"},
		{nil, []xfer.RailUse{{Rail: "mlx5_0", Relaxed: true}, {Rail: "mlx5_1"}}, "slots here: relaxed ordering at mlx5_0"},
		{[]int{0, 1}, []xfer.RailUse{{Rail: "mlx5_0", Relaxed: true}}, "slots here: on NUMA nodes 0 and 1; relaxed ordering at mlx5_0"},
	} {
		if got := slotsText(&xfer.Summary{NUMANodes: c.nodes, Rails: c.rails}); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.nodes, c.rails, got, c.want)
		}
	}
}

func TestNodesInTheSummaryEvent(t *testing.T) {
	for _, c := range []struct {
		nodes []int
		want  string
	}{{nil, ""}, {[]int{1}, `"numa_node":1,"numa_nodes":[1]`}, {[]int{0, 1}, `"numa_node":0,"numa_nodes":[0,1]`}} {
		b, err := json.Marshal(eventOf(&xfer.Summary{NUMANodes: c.nodes}))
		if err != nil {
			t.Fatal(err)
		}
		if c.want == "" && strings.Contains(string(b), "numa") || !strings.Contains(string(b), c.want) {
			t.Errorf("nodes %v: %s", c.nodes, b)
		}
	}
}
