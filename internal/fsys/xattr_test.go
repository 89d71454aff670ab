package fsys

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestXattrIsAskedForAgain: a value that grows between two calls, and a signal,
// are not errors.
func TestXattrIsAskedForAgain(t *testing.T) {
	answers := []struct {
		n   int
		err error
	}{{-1, unix.EINTR}, {4, nil}, {-1, unix.ERANGE}, {5, nil}, {-1, unix.EINTR}, {5, nil}, {5, nil}}
	calls := 0
	b, err := Sized(func([]byte) (int, error) {
		a := answers[min(calls, len(answers)-1)]
		calls++
		return a.n, a.err
	})
	if err != nil || len(b) != 5 || calls != len(answers) {
		t.Errorf("%d bytes after %d calls: %v", len(b), calls, err)
	}
}
