package main

import "fmt"

// sizes are the amounts that the comparisons transfer.
type sizes struct {
	fileMiB   int // the large file, and memory to memory on the host
	resumeMiB int // the file whose copy is interrupted
	hostMiB   int // maximum content of the tmpfs: the files, the tree, and a copy of each
	diskMiB   int // the file that is copied to and from a disk
	treeName  string
	// bedFileMiB is large enough that the constant second of every copy in the bed is a
	// small part of its time.
	bedFileMiB  int
	lateFileMiB int // the file on the delayed disk
	// bedMemoryParts divides the amount that a bandwidth test in the bed transfers.
	bedMemoryParts int
	wiresMiB       int // the file that is copied between guests
	farMiB         int // the file that is copied to a distant guest
}

// full are the sizes for meaningful times, and short the smallest with which every row can
// be produced.
var (
	full  = sizes{fileMiB: 2048, resumeMiB: 4096, hostMiB: 13 << 10, diskMiB: 4 << 10, treeName: "Linux tree", bedFileMiB: 512, lateFileMiB: 768, bedMemoryParts: 1, wiresMiB: 64, farMiB: 128}
	short = sizes{fileMiB: 64, resumeMiB: 64, hostMiB: 768, diskMiB: 64, treeName: "Go's src/net", bedFileMiB: 8, lateFileMiB: 8, bedMemoryParts: 16, wiresMiB: 2, farMiB: 2}
)

// file formats the large file's size.
func (s sizes) file() string { return mebibytes(s.fileMiB) }

// mebibytes formats a size.
func mebibytes(mib int) string {
	if mib%1024 == 0 {
		return fmt.Sprintf("%d GiB", mib/1024)
	}
	return fmt.Sprintf("%d MiB", mib)
}
