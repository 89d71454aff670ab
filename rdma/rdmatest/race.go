package rdmatest

import "os"

// EndAtOnce makes programs that the tests start exit 50 ms after they are done, if they
// are built with the race detector, as the test binary itself is. By default the race
// detector gives other goroutines one second to report races, and a test that waits for
// the program waits for that second too (atexit_sleep_ms,
// https://go.dev/doc/articles/race_detector). Settings already in GORACE are kept.
func EndAtOnce() error {
	return os.Setenv("GORACE", "atexit_sleep_ms=50 "+os.Getenv("GORACE"))
}
