//go:build cgo

package inherited

// #include "start.h"
import "C"

// lookedAtStart reports whether a descriptor was closed at the start. known is
// true if the C library has run the constructor in start.c.
func lookedAtStart(fd int) (missing, known bool) {
	return C.inherited_missing>>fd&1 != 0, C.inherited_looked != 0
}
