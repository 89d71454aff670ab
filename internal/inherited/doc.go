// Package inherited says which of the standard descriptors a process was
// started without. Go's runtime opens /dev/null in the place of those that are
// closed, before any Go code runs: input then looks empty, and output that goes
// nowhere looks written. What the runtime has opened is not to be told from a
// /dev/null that was given to the process, so C code looks before the runtime
// does.
package inherited

// State is what is known of a standard descriptor at the start of the process.
type State int

// The states.
const (
	// Given: it was open.
	Given State = iota
	// Missing: it was closed.
	Missing
	// Unsure: it is /dev/null, open for reading and writing. That is what the
	// runtime opens, and what some programs hand down. Only where there is no C
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
