package main

import "fmt"

// sizes are how much the comparisons move.
type sizes struct {
	fileMiB   int // the large file, and memory to memory on the host
	resumeMiB int // the file that is cut off
	hostMiB   int // what the tmpfs holds at most: the files, the tree, and a copy of each
	diskMiB   int // the file that goes to a disk, and from there
	treeName  string
	// bedFileMiB is so much that the second which every copy takes in the bed is no large
	// part of its time.
	bedFileMiB  int
	lateFileMiB int // the file on the late disk
	// bedMemoryParts divides what a bandwidth test in the bed moves.
	bedMemoryParts int
	wiresMiB       int // the file that goes from guest to guest
	farMiB         int // the file that goes to a guest far away
}

// full are the sizes whose times mean something, and short the least with which
// every row comes about.
var (
	full  = sizes{fileMiB: 2048, resumeMiB: 4096, hostMiB: 13 << 10, diskMiB: 4 << 10, treeName: "Linux tree", bedFileMiB: 512, lateFileMiB: 768, bedMemoryParts: 1, wiresMiB: 64, farMiB: 128}
	short = sizes{fileMiB: 64, resumeMiB: 64, hostMiB: 768, diskMiB: 64, treeName: "Go's src/net", bedFileMiB: 8, lateFileMiB: 8, bedMemoryParts: 16, wiresMiB: 2, farMiB: 2}
)

// file names the large file's size.
func (s sizes) file() string { return mebibytes(s.fileMiB) }

// mebibytes names a size.
func mebibytes(mib int) string {
	if mib%1024 == 0 {
		return fmt.Sprintf("%d GiB", mib/1024)
	}
	return fmt.Sprintf("%d MiB", mib)
}
