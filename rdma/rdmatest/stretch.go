package rdmatest

import "time"

// MachineFactor is how much longer than on a machine of its own a test's limits give
// what it waits for: others may keep the processors busy.
const MachineFactor = 4

// Stretch widens a limit that only a failure comes near, given by what bounds the
// wait in the code that is tested.
func Stretch(limit time.Duration) time.Duration { return MachineFactor * limit }
