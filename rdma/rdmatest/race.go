package rdmatest

import "os"

// EndAtOnce lets programs that the tests start end 50 ms after they are done where the
// race detector is in them, as in the test binary itself: it gives other goroutines a
// second otherwise to tell of races, which whoever waits for the program's end waits, too
// (atexit_sleep_ms, https://go.dev/doc/articles/race_detector). What is in GORACE already
// counts all the same.
func EndAtOnce() error {
	return os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE"))
}
