package gpu

// HashJob is a piece of a file in device memory: Len bytes at Offset, which is
// a multiple of 64. Len may be 0.
//
// Its digest is the chaining value of the piece's subtree in the BLAKE3 tree of its file.
// Counter is the number, in the file, of the piece's first chunk of 1024 bytes. If Root is
// set, because the piece is a whole file, the digest is the file's BLAKE3 hash.
// manifest.Algorithm.Piece computes the same on the CPU.
type HashJob struct {
	Memory  *Memory
	Offset  int
	Len     int
	Counter uint64
	Root    bool
}
