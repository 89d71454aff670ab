package chunker

import "runtime"

// Workers is how many goroutines read and digest, or verify and write, the pieces of
// one tree. Two keep a device busy while one waits for a disk. More help only where
// there are cores for them.
func Workers() int { return min(max(runtime.GOMAXPROCS(0), 2), 8) }
