package chunker

import "golang.org/x/sys/unix"

// ShareOfFiles is the number of files that the process may open (setrlimit(2)), divided
// by parts, but within least and most.
func ShareOfFiles(parts uint64, least, most int) int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur/parts >= uint64(most) {
		return most
	}
	return max(least, int(r.Cur/parts))
}
