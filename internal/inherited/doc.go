// Package inherited reports which of the standard descriptors were closed when
// the process started. Before any Go code runs, Go's runtime opens /dev/null in
// their place: then input looks empty, and lost output looks written. The
// runtime's /dev/null cannot be distinguished from one that the process
// inherited, so C code checks before the runtime starts.
package inherited

// State is the state of a standard descriptor at the start of the process.
type State int

// The possible states.
const (
	// Given: the descriptor was open.
	Given State = iota
	// Missing: the descriptor was closed.
	Missing
	// Unsure: the descriptor is /dev/null, open for reading and writing. The
	// runtime opens it that way, and some programs pass it on. This state
	// occurs only in binaries without C code.
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
