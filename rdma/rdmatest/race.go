package rdmatest

import "os"

// EndAtOnce lets programs that the tests start exit 50 ms after they are done, if they
// have the race detector, as the test binary itself has. Otherwise the race detector
// gives other goroutines a second to report races, and a test that waits for the program
// waits for that second too (atexit_sleep_ms, https://go.dev/doc/articles/race_detector).
// Settings that GORACE already has still count.
func EndAtOnce() error {
	return os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE"))
}
