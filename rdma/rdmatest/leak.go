package rdmatest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// census counts the resources that a process can leak.
type census struct {
	goroutines int
	fds        int
	// devices are mappings of device files: queues and doorbells.
	devices int
	// pinned is VmPin of proc(5): memory that devices hold.
	pinned string
}

func takeCensus(t testing.TB) census {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatalf("count file descriptors: %v", err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatalf("count mappings: %v", err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatalf("read pinned memory: %v", err)
	}
	_, pinned, _ := strings.Cut(string(status), "VmPin:")
	pinned, _, _ = strings.Cut(pinned, "\n")
	return census{
		goroutines: runtime.NumGoroutine(),
		fds:        len(fds),
		devices:    strings.Count(string(maps), "/dev/"),
		pinned:     strings.TrimSpace(pinned),
	}
}

// exceeds describes what has grown since the other census.
func (c census) exceeds(before census) string {
	var grown []string
	note := func(what string, was, is int) {
		if is > was {
			grown = append(grown, fmt.Sprintf("%s: %d, were %d", what, is, was))
		}
	}
	note("goroutines", before.goroutines, c.goroutines)
	note("file descriptors", before.fds, c.fds)
	note("device mappings", before.devices, c.devices)
	if c.pinned != before.pinned {
		grown = append(grown, fmt.Sprintf("pinned memory: %s, was %s", c.pinned, before.pinned))
	}
	return strings.Join(grown, "; ")
}

// checkLeaks compares the census before the test with that after the test and
// its other cleanups. It must be called first. Goroutines and kernel objects
// may take a moment to disappear.
func checkLeaks(t *testing.T, s *suite) {
	before := takeCensus(t)
	t.Cleanup(func() {
		deadline := time.Now().Add(s.limit(2 * time.Second))
		for {
			grown := takeCensus(t).exceeds(before)
			if grown == "" {
				return
			}
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Errorf("leaked: %s\n%s", grown, stacks[:runtime.Stack(stacks, true)])
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}
