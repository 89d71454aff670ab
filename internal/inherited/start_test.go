//go:build cgo

package inherited

import "testing"

// With C code the state is never Unsure.
func TestLookedInTime(t *testing.T) {
	if _, known := lookedAtStart(0); !known {
		t.Error("the constructor did not run before the runtime")
	}
}
