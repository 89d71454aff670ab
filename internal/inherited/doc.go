// Package inherited says which of the standard descriptors were closed when the process
// was started. Before any Go code runs, Go's runtime opens /dev/null in their place:
// input then looks empty, and output that goes nowhere looks written. The runtime's
// /dev/null looks like one that was given to the process, so C code looks before the
// runtime does.
package inherited

// State is the state of a standard descriptor at the start of the process.
type State int

// The states.
const (
	// Given: the descriptor was open.
	Given State = iota
	// Missing: the descriptor was closed.
	Missing
	// Unsure: the descriptor is /dev/null, open for reading and writing. The runtime
	// opens that, and some programs hand it down. This state occurs only without C
	// code.
	Unsure
)

// Look returns the state of descriptor 0, 1 or 2. It does not block.
func Look(fd int) State {
	if missing, known := lookedAtStart(fd); known {
		if missing {
			return Missing
		}
		return Given
	}
	if isNull(fd) {
		return Unsure
	}
	return Given
}
