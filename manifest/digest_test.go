package manifest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"lukechampine.com/blake3"
)

// everyAlgorithm lists all algorithms, for tests that apply to each.
var everyAlgorithm = []Algorithm{XXH3, BLAKE3, CRC32C, SHA256}

// randomBytes returns n bytes that depend only on n and seed.
func randomBytes(n int, seed uint64) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = rng.Read(b)
	return b
}

// fileRoot digests data as a whole file and returns its root.
func fileRoot(a Algorithm, data []byte, pieceBytes int) Digest {
	t := NewTree(a)
	whole := len(data) <= pieceBytes
	for i := 0; i*pieceBytes < len(data); i++ {
		piece := data[i*pieceBytes : min(len(data), (i+1)*pieceBytes)]
		t.Push(a.Piece(piece, uint64(i), int64(pieceBytes), whole))
	}
	return t.Root()
}

func TestAlgorithmNames(t *testing.T) {
	want := []struct {
		a     Algorithm
		name  string
		bytes int
	}{{XXH3, "xxh3", 16}, {BLAKE3, "blake3", 32}, {CRC32C, "crc32c", 4}, {SHA256, "sha256", 32}}
	for i, w := range want {
		if int(w.a) != i+1 {
			t.Errorf("%s has number %d, its wire number is %d", w.name, w.a, i+1)
		}
		if got, err := ParseAlgorithm(w.name); got != w.a || err != nil {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", w.name, got, err)
		}
		if w.a.String() != w.name || w.a.DigestBytes() != w.bytes || !w.a.Valid() {
			t.Errorf("%d: %s, %d bytes, valid %v", w.a, w.a, w.a.DigestBytes(), w.a.Valid())
		}
	}
	for _, name := range []string{"", "XXH3", "md5", "xxh3 "} {
		if a, err := ParseAlgorithm(name); err == nil {
			t.Errorf("ParseAlgorithm(%q) = %v, want an error", name, a)
		}
	}
	for _, a := range []Algorithm{0, 5, 255} {
		if a.Valid() || a.String() != fmt.Sprintf("Algorithm(%d)", uint8(a)) {
			t.Errorf("%d: valid %v, %q", uint8(a), a.Valid(), a)
		}
	}
}

func TestCheckPieceBytes(t *testing.T) {
	for n, ok := range map[int64]bool{
		64 << 10: true, 1 << 20: true, 1 << 30: true,
		0: false, -1 << 20: false, 32 << 10: false, 1 << 31: false, 1<<20 + 1: false, 3 << 20: false, -1 << 63: false,
	} {
		if err := CheckPieceBytes(n); (err == nil) != ok {
			t.Errorf("CheckPieceBytes(%d) = %v", n, err)
		}
	}
}

func TestPieceCount(t *testing.T) {
	for _, c := range []struct {
		file, piece int64
		want        uint64
	}{
		{0, 1 << 20, 0}, {1, 1 << 20, 1}, {1 << 20, 1 << 20, 1}, {1<<20 + 1, 1 << 20, 2},
		{1<<63 - 1, 64 << 10, 1 << 47}, {1<<63 - 1, 1 << 30, 1 << 33},
	} {
		if got := PieceCount(c.file, c.piece); got != c.want {
			t.Errorf("PieceCount(%d, %d) = %d, want %d", c.file, c.piece, got, c.want)
		}
	}
}

// The published vectors of each algorithm: the layout of a digest is part of
// the format, and must be what other tools print.
func TestPieceVectors(t *testing.T) {
	for _, c := range []struct {
		a    Algorithm
		data string
		want string
	}{
		{XXH3, "", "99aa06d3014798d86001c324468d497f"},
		{CRC32C, "", "00000000"},
		{CRC32C, "123456789", "e3069283"},
		{CRC32C, strings.Repeat("\x00", 32), "8a9136aa"}, // RFC 3720 B.4
		{SHA256, "abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{BLAKE3, "", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{BLAKE3, "\x00", "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
	} {
		got := c.a.Hex(c.a.Piece([]byte(c.data), 0, DefaultPieceBytes, true))
		if got != c.want {
			t.Errorf("%s of %q = %s, want %s", c.a, c.data, got, c.want)
		}
		if d, err := c.a.ParseHex([]byte(got)); err != nil || c.a.Hex(d) != got {
			t.Errorf("ParseHex(%s) = %x, %v", got, d, err)
		}
	}
}

func TestParseHexRejects(t *testing.T) {
	for _, s := range []string{"", "0000000", "000000000", "0000000G", "0000000A", "0000000 ", "-0000000", "0x000000"} {
		if d, err := CRC32C.ParseHex([]byte(s)); err == nil {
			t.Errorf("ParseHex(%q) = %x, want an error", s, d)
		}
	}
}

// blake3Lengths returns lengths around the points at which BLAKE3's tree
// changes shape: blocks, chunks, groups of SIMD lanes, pieces of 64 KiB.
func blake3Lengths() []int {
	lengths := []int{0, 1, 63, 64, 65, 1023, 1024, 1025, 2047, 2048, 2049, 3072, 8191, 8192, 8193, 9000}
	for _, unit := range []int{groupBytes, 64 << 10} {
		for _, n := range []int{1, 2, 3, 4, 5, 7, 8, 9} {
			lengths = append(lengths, n*unit-1, n*unit, n*unit+1, n*unit+1024, n*unit+1025)
		}
	}
	return append(lengths, 1<<20, 1<<20+4097, 3<<20-1)
}

func TestBLAKE3RootIsBLAKE3(t *testing.T) {
	for _, n := range blake3Lengths() {
		data := randomBytes(n, 1)
		want := Digest(blake3.Sum256(data))
		for _, piece := range []int{64 << 10, 128 << 10, 1 << 20, 4 << 20} {
			if got := fileRoot(BLAKE3, data, piece); got != want {
				t.Errorf("%d bytes in pieces of %d: root %x, BLAKE3 is %x", n, piece, got, want)
			}
		}
	}
}

func TestBLAKE3RootIsWhatB3sumPrints(t *testing.T) {
	b3sum, err := exec.LookPath("b3sum")
	if err != nil {
		t.Skip("b3sum is not installed: try apt-get install b3sum")
	}
	const piece = 1 << 20
	lengths := []int{0, 1, 1023, 1024, 1025, piece - 1, piece, piece + 1, 2 * piece, 3*piece - 1, 7*piece + 12345}
	dir := t.TempDir()
	args := []string{"--no-names"}
	for _, n := range lengths {
		name := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(name, randomBytes(n, 2), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	out, err := exec.Command(b3sum, args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	sums := strings.Fields(string(out))
	if len(sums) != len(lengths) {
		t.Fatalf("b3sum printed %d sums of %d files", len(sums), len(lengths))
	}
	for i, n := range lengths {
		if got := BLAKE3.Hex(fileRoot(BLAKE3, randomBytes(n, 2), piece)); got != sums[i] {
			t.Errorf("%d bytes: root %s, b3sum prints %s", n, got, sums[i])
		}
	}
}

func TestPieceIsPlainDigest(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 64 << 10} {
		data := randomBytes(n, 3)
		for _, whole := range []bool{false, true} {
			x := xxh3.Hash128(data).Bytes()
			if got := XXH3.Piece(data, 7, 64<<10, whole); !bytes.Equal(got[:16], x[:]) || got != (Digest(append(x[:], make([]byte, 16)...))) {
				t.Errorf("xxh3 of %d bytes = %x, want %x and zeros", n, got, x)
			}
			if got := SHA256.Piece(data, 7, 64<<10, whole); got != sha256.Sum256(data) {
				t.Errorf("sha256 of %d bytes = %x", n, got)
			}
		}
	}
}

func TestPieceInvalidAlgorithmPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a digest by no algorithm did not panic")
		}
	}()
	Algorithm(9).Piece(nil, 0, DefaultPieceBytes, true)
}

func TestZeroPieceIsPieceOfZeros(t *testing.T) {
	for _, a := range everyAlgorithm {
		for _, n := range []int{0, 1, 1000, 1024, 1500, groupBytes - 1, groupBytes, groupBytes + 1, 64<<10 - 1, 64 << 10, 100_000, 1<<20 - 3, 1 << 20, 4 << 20} {
			for _, index := range []uint64{0, 1, 1 << 33} {
				for _, whole := range []bool{true, false} {
					piece := int64(4 << 20)
					want := a.Piece(make([]byte, n), index, piece, whole)
					for range 2 { // the second time from the table
						if got := a.ZeroPiece(n, index, piece, whole); got != want {
							t.Fatalf("%s: %d zeros at %d, whole %v: %x, want %x", a, n, index, whole, got, want)
						}
					}
				}
			}
		}
	}
	if zeros != [len(zeros)]byte{} {
		t.Error("the page of zeros has been written")
	}
}

func TestDigestsDoNotAllocate(t *testing.T) {
	data := randomBytes(1<<20, 4)
	for _, a := range everyAlgorithm {
		a.ZeroPiece(1<<20, 0, 1<<20, false)
		for _, n := range []int{100, 1500, 100_000, 1 << 20} {
			if got := testing.AllocsPerRun(3, func() { a.Piece(data[:n], 5, 1<<20, false) }); got != 0 {
				t.Errorf("%s.Piece of %d bytes: %v allocations", a, n, got)
			}
		}
		for _, n := range []int{100, 1500, 1 << 20} {
			if got := testing.AllocsPerRun(3, func() { a.ZeroPiece(n, 5, 1<<20, false) }); got != 0 {
				t.Errorf("%s.ZeroPiece of %d bytes: %v allocations", a, n, got)
			}
		}
	}
}

func BenchmarkPiece(b *testing.B) {
	data := randomBytes(1<<20, 5)
	for _, a := range everyAlgorithm {
		b.Run(a.String(), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.Piece(data, uint64(i), 1<<20, false)
			}
		})
	}
	b.Run("blake3-library", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			blake3.Sum256(data)
		}
	})
}

func BenchmarkZeroPiece(b *testing.B) {
	for _, a := range everyAlgorithm {
		b.Run(a.String(), func(b *testing.B) {
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.ZeroPiece(1<<20, uint64(i), 1<<20, false)
			}
		})
	}
}
