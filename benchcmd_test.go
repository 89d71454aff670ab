package main

import (
	"slices"
	"strings"
	"testing"
)

func TestBench(t *testing.T) {
	s := startServer(t)
	r := gdrcp(t, "bench", "rdma://"+s.addr, "--bytes", "8M", "--rounds", "20", "--qps", "2", "--slots=4", "--chunk-size", "512K").want(t, exitOK)
	var first []string
	for line := range strings.Lines(r.out) {
		if f := strings.Fields(line); len(f) > 2 {
			first = append(first, f[0]+" "+f[2])
		}
	}
	want := []string{"BANDWIDTH DIGEST", "tcp none", "tcp xxh3", "LATENCY OPERATION", "tcp send", "tcp write", "tcp write-imm"}
	if !slices.Equal(first, want) || r.err != autoLine {
		t.Errorf("it wrote\n%s%s", r.out, r.err)
	}
}

func TestBenchEvents(t *testing.T) {
	s := startServer(t)
	r := gdrcp(t, "bench", "--json", "--transport", "tcp", "--hash", "blake3,none", "--bytes=3MiB", "--rounds", "20", "rdma://"+s.addr).want(t, exitOK)
	var seen []string
	for _, e := range r.events(t) {
		switch e["event"] {
		case "bandwidth":
			seen = append(seen, e["hash"].(string))
			if e["transport"] != "tcp" || e["bytes"] != 3145728.0 || e["mib_per_s"].(float64) <= 0 || e["seconds"].(float64) <= 0 || e["imm"] != "write-with-imm" || e["qps"] != 1.0 {
				t.Errorf("event %v", e)
			}
		case "latency":
			seen = append(seen, e["op"].(string))
			least, median, p99 := e["min_us"].(float64), e["median_us"].(float64), e["p99_us"].(float64)
			if least <= 0 || median < least || p99 < median || e["rounds"] != 20.0 {
				t.Errorf("event %v", e)
			}
		default:
			t.Errorf("event %v", e)
		}
	}
	if !slices.Equal(seen, []string{"blake3", "none", "send", "write", "write-imm"}) || r.err != "" {
		t.Errorf("events for %v, and it wrote %q", seen, r.err)
	}
	if r := gdrcp(t, "bench", "--json", "--rounds", "0", "--bytes", "1M", "rdma://"+s.addr).want(t, exitOK); strings.Contains(r.out, "latency") {
		t.Errorf("--rounds 0 wrote %s", r.out)
	}
}
