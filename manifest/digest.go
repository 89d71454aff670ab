package manifest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"

	"github.com/zeebo/xxh3"
)

// Algorithm is a digest algorithm for pieces. The zero value is no algorithm.
//
//	name    digest     of one piece, in bytes
//	xxh3    16         XXH3-128, canonical (as xxh128sum prints it)
//	blake3  32         a subtree of BLAKE3's own tree, see Piece
//	crc32c   4         CRC-32C (Castagnoli), big-endian
//	sha256  32         SHA-256 (FIPS 180-4)
//
// Only blake3 and sha256 resist deliberate collisions; xxh3 and crc32c detect
// accidental corruption.
type Algorithm uint8

// The algorithms. The numbers go over the wire and into roots: never renumber.
const (
	XXH3 Algorithm = iota + 1
	BLAKE3
	CRC32C
	SHA256
)

// algorithms describes each algorithm, indexed by its number.
var algorithms = [...]struct {
	name  string
	bytes int
}{
	XXH3:   {"xxh3", 16},
	BLAKE3: {"blake3", 32},
	CRC32C: {"crc32c", 4},
	SHA256: {"sha256", 32},
}

// castagnoli is the table of CRC-32C. With this table crc32 uses the processor's
// instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Bounds of a piece's size in bytes, and its default.
const (
	MinPieceBytes     = 64 << 10
	MaxPieceBytes     = 1 << 30
	DefaultPieceBytes = 1 << 20
)

// ParseAlgorithm returns the algorithm with the given name: "xxh3", "blake3",
// "crc32c" or "sha256".
func ParseAlgorithm(name string) (Algorithm, error) {
	for a := XXH3; a.Valid(); a++ {
		if algorithms[a].name == name {
			return a, nil
		}
	}
	return 0, fmt.Errorf("unknown digest algorithm %q", name)
}

// Valid reports whether a is one of the algorithms. If it is false, every other
// method except String panics or returns a meaningless value, so values from a
// peer must be checked.
func (a Algorithm) Valid() bool { return a >= XXH3 && int(a) < len(algorithms) }

// String returns the name that ParseAlgorithm accepts.
func (a Algorithm) String() string {
	if !a.Valid() {
		return fmt.Sprintf("Algorithm(%d)", uint8(a))
	}
	return algorithms[a].name
}

// DigestBytes is the number of bytes of a Digest that the algorithm uses, from
// the front; the rest are zero.
func (a Algorithm) DigestBytes() int { return algorithms[a].bytes }

// CheckPieceBytes returns an error unless n is a valid piece size: a power of two from
// MinPieceBytes to MaxPieceBytes. BLAKE3 needs the power of two, so that a piece is a
// subtree; the bounds keep a digest list small and a piece in memory.
func CheckPieceBytes(n int64) error {
	if n < MinPieceBytes || n > MaxPieceBytes || n&(n-1) != 0 {
		return fmt.Errorf("piece size %d: not a power of two from %d to %d", n, MinPieceBytes, MaxPieceBytes)
	}
	return nil
}

// PieceCount returns the number of pieces of a file of the given size; an empty
// file has none.
func PieceCount(fileBytes, pieceBytes int64) uint64 {
	n := fileBytes / pieceBytes
	if fileBytes%pieceBytes != 0 {
		n++
	}
	return uint64(n)
}

// Piece digests piece number index (from 0) of a file cut every pieceBytes. data is the
// whole piece: pieceBytes long, except the last piece of a file. whole means that it is
// the file's only piece. It allocates nothing, starts no goroutine and does not keep data.
//
// For BLAKE3 the digest is the chaining value of the piece's subtree in the
// file's BLAKE3 tree, which depends on index. The digest of a file's only piece
// is the file's ordinary BLAKE3 hash. For the other algorithms it is the plain
// digest of data, and index and whole do not matter.
func (a Algorithm) Piece(data []byte, index uint64, pieceBytes int64, whole bool) Digest {
	switch a {
	case XXH3:
		return digestXXH3(xxh3.Hash128(data))
	case BLAKE3:
		return blake3Piece(data, len(data), index, pieceBytes, whole)
	case CRC32C:
		return digestCRC32C(crc32.Checksum(data, castagnoli))
	case SHA256:
		return sha256.Sum256(data)
	}
	panic("manifest: digest of a piece by " + a.String())
}

// digestXXH3 stores h canonically: big-endian, high half first.
func digestXXH3(h xxh3.Uint128) (d Digest) {
	binary.BigEndian.PutUint64(d[:8], h.Hi)
	binary.BigEndian.PutUint64(d[8:], h.Lo)
	return d
}

func digestCRC32C(sum uint32) (d Digest) {
	binary.BigEndian.PutUint32(d[:], sum)
	return d
}

// AppendHex appends d in lower-case hexadecimal, two characters per used byte.
func (a Algorithm) AppendHex(dst []byte, d Digest) []byte {
	return hex.AppendEncode(dst, d[:a.DigestBytes()])
}

// Hex returns d as AppendHex writes it.
func (a Algorithm) Hex(d Digest) string { return string(a.AppendHex(nil, d)) }

// ParseHex parses the output of AppendHex. It accepts lower case only, so that
// a digest has one spelling and a manifest one text. Errors wrap ErrFormat.
func (a Algorithm) ParseHex(s []byte) (d Digest, err error) {
	if !parseHex(d[:a.DigestBytes()], s) {
		return Digest{}, fmt.Errorf("%w: %.80q is not a %s digest", ErrFormat, s, a)
	}
	return d, nil
}

// parseHex fills dst from lower-case hexadecimal digits, exactly two per byte of dst.
func parseHex(dst, s []byte) bool {
	if len(s) != 2*len(dst) {
		return false
	}
	for i := range dst {
		hi, lo := unhex(s[2*i]), unhex(s[2*i+1])
		if hi > 15 || lo > 15 {
			return false
		}
		dst[i] = hi<<4 | lo
	}
	return true
}

// unhex returns the value of a lower-case hexadecimal digit, or 255.
func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}
