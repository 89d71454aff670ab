package chunker

import (
	"runtime"
	"testing"
)

// TestWorkersFollowTheProcessors: no test of this package runs beside this one.
func TestWorkersFollowTheProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range []struct{ processors, compute, wait int }{{1, 2, 8}, {2, 2, 8}, {6, 6, 24}, {24, 24, 96}, {128, 24, 96}} {
		runtime.GOMAXPROCS(c.processors)
		if got, wait := Workers(), DiskWorkers(); got != c.compute || wait != c.wait {
			t.Errorf("on %d processors %d workers compute and %d are there, want %d and %d", c.processors, got, wait, c.compute, c.wait)
		}
	}
}
