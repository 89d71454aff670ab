package rdmatest

import "time"

// MachineFactor multiplies the timeouts of tests. Other programs may keep the
// processors busy, so a wait can take longer than on an idle machine.
const MachineFactor = 4

// Stretch extends a timeout that only a failure reaches. limit is the bound on
// the wait in the tested code.
func Stretch(limit time.Duration) time.Duration { return MachineFactor * limit }
