package manifest

import (
	"crypto/sha256"
	"hash/crc32"
	"math/bits"
	"sync"

	"github.com/zeebo/xxh3"
)

// zeros is the buffer from which holes are digested. It is never written, so
// the kernel backs it with the shared zero page, and one group of it remains in
// the first-level cache.
var zeros [MinPieceBytes]byte

// zeroTable holds the digest of a full piece of zeros for every algorithm but BLAKE3
// and every piece size. Each is computed at its first use.
var zeroTable [len(algorithms)][15]struct {
	once   sync.Once
	digest Digest
}

// ZeroPiece is Piece for n zero bytes that need not be in memory: holes are neither read
// nor sent. After its first calls it allocates nothing. It is safe for concurrent use.
//
// With xxh3, crc32c or sha256 a full piece is a table look-up after the first.
// The last, shorter piece of a file is digested from a buffer that remains in
// the cache. BLAKE3 mixes each chunk's number into its chaining value, so no
// two zero pieces have the same digest, and each is computed, at the speed of
// the processor (some 4 GB/s with AVX-512, 0.25 ms per MiB).
func (a Algorithm) ZeroPiece(n int, index uint64, pieceBytes int64, whole bool) Digest {
	if a == BLAKE3 {
		return blake3Piece(nil, n, index, pieceBytes, whole)
	}
	if n < MinPieceBytes || n > MaxPieceBytes || n&(n-1) != 0 {
		return a.zeroDigest(n)
	}
	memo := &zeroTable[a][bits.TrailingZeros(uint(n)/MinPieceBytes)]
	memo.once.Do(func() { memo.digest = a.zeroDigest(n) })
	return memo.digest
}

// zeroDigest returns the plain digest of n zero bytes.
func (a Algorithm) zeroDigest(n int) Digest {
	if n <= len(zeros) {
		return a.Piece(zeros[:n], 0, MinPieceBytes, false)
	}
	switch a {
	case XXH3:
		var h xxh3.Hasher
		for ; n > 0; n -= len(zeros) {
			_, _ = h.Write(zeros[:min(n, len(zeros))])
		}
		return digestXXH3(h.Sum128())
	case CRC32C:
		sum := uint32(0)
		for ; n > 0; n -= len(zeros) {
			sum = crc32.Update(sum, castagnoli, zeros[:min(n, len(zeros))])
		}
		return digestCRC32C(sum)
	case SHA256:
		h := sha256.New()
		for ; n > 0; n -= len(zeros) {
			h.Write(zeros[:min(n, len(zeros))])
		}
		var d Digest
		h.Sum(d[:0])
		return d
	}
	panic("manifest: digest of zeros by " + a.String())
}
