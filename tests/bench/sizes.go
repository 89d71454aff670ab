package main

import "fmt"

// sizes are how much the comparisons move.
type sizes struct {
	fileMiB    int // the large file, and memory to memory on the host
	firstMiB   int // the file of which the first byte is waited for
	hostMiB    int // what the tmpfs holds at most: the files, the tree, and a copy of each
	diskMiB    int // the file that goes to a disk, and from there
	treeName   string
	bedFileMiB int
	// bedMemoryParts divides what a bandwidth test in the bed moves.
	bedMemoryParts int
}

// full are the sizes whose times mean something, and short the least with which
// every row comes about.
var (
	full  = sizes{fileMiB: 2048, firstMiB: 64, hostMiB: 13 << 10, diskMiB: 4 << 10, treeName: "Linux tree", bedFileMiB: 256, bedMemoryParts: 1}
	short = sizes{fileMiB: 64, firstMiB: 16, hostMiB: 768, diskMiB: 64, treeName: "Go's src/net", bedFileMiB: 8, bedMemoryParts: 16}
)

// file names the large file's size.
func (s sizes) file() string {
	if s.fileMiB%1024 == 0 {
		return fmt.Sprintf("%d GiB", s.fileMiB/1024)
	}
	return fmt.Sprintf("%d MiB", s.fileMiB)
}

// shortNote is printed above a short table, which has no goals.
const shortNote = "Short: this shows that every row comes about; its figures mean nothing.\n"

// withoutGoals are rows that nobody is to judge by.
func withoutGoals(rows []row) []row {
	for i := range rows {
		rows[i].goal = 0
	}
	return rows
}
