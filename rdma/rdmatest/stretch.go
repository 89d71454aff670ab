package rdmatest

import "time"

// MachineFactor multiplies the limits for which a test waits. Other programs may keep
// the processors busy, so a wait can take longer than on an idle machine.
const MachineFactor = 4

// Stretch widens a limit that only a failure comes near. limit is the bound on the wait
// in the tested code.
func Stretch(limit time.Duration) time.Duration { return MachineFactor * limit }
