//go:build linux && cgo

package gpu

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"

	"gdrcp/manifest"
)

// hashBench is a Hasher with the objects that a test needs to use it.
type hashBench struct {
	t      testing.TB
	ctx    *Context
	stream *Stream
	hasher *Hasher
}

func newHashBench(t testing.TB, c *Context, maxJobs, maxBytes int) *hashBench {
	t.Helper()
	h, err := c.NewHasher(maxJobs, maxBytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "hasher", h) })
	return &hashBench{t, c, newStream(t, c), h}
}

// load returns device memory with data in it.
func (b *hashBench) load(data []byte) *Memory {
	b.t.Helper()
	m, host := alloc(b.t, b.ctx, len(data)), pinned(b.t, b.ctx, len(data))
	copy(host, data)
	if err := b.stream.ToDevice(m, 0, host); err != nil {
		b.t.Fatal(err)
	}
	if err := b.stream.Wait(); err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *hashBench) digest(jobs []HashJob) {
	b.t.Helper()
	if err := b.hasher.Begin(b.stream, jobs); err != nil {
		b.t.Fatal(err)
	}
	if err := b.stream.Wait(); err != nil {
		b.t.Fatal(err)
	}
}

// compare digests jobs, whose memory contains data, on the device and on the processor.
func (b *hashBench) compare(data []byte, jobs []HashJob) {
	b.t.Helper()
	b.digest(jobs)
	for i, j := range jobs {
		if got, want := b.hasher.Digest(i), onCPU(data, &j); got != want {
			b.t.Fatalf("job %d of %d, %d bytes at %d, counter %d, root %v: %x, want %x",
				i, len(jobs), j.Len, j.Offset, j.Counter, j.Root, got, want)
		}
	}
}

// onCPU returns the expected digest of a job. With pieces of one chunk the
// index of the piece is the counter.
func onCPU(data []byte, j *HashJob) [32]byte {
	return manifest.BLAKE3.Piece(data[j.Offset:j.Offset+j.Len], j.Counter, hashChunkBytes, j.Root)
}

// jobsOf makes jobs of the given lengths, one after another, each at a multiple
// of 64, every other one a root; it returns the number of bytes that they need.
func jobsOf(m *Memory, rng *rand.Rand, lengths []int) (jobs []HashJob, bytes int) {
	for i, n := range lengths {
		j := HashJob{Memory: m, Offset: bytes, Len: n, Root: i%2 == 1}
		if !j.Root {
			j.Counter = rng.Uint64() >> rng.IntN(64)
		}
		jobs = append(jobs, j)
		bytes += (n + 63) / 64 * 64
	}
	return jobs, bytes
}

// noise returns n bytes with no repeating pattern.
func noise(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

func TestDigestEveryLength(t *testing.T) {
	const most = 4200
	c := useFake(t, "strict")
	data := noise((most + 1) * most / 2 * 11 / 10)
	b := newHashBench(t, c, most+1, len(data))
	m := b.load(data)
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := make([]int, most+1)
	for i := range lengths {
		lengths[i] = i
	}
	up, _ := jobsOf(m, rng, lengths)
	b.compare(data, up)
	// In another order the jobs have other positions in the tiles, and odd ones
	// are not roots.
	rng.Shuffle(len(lengths), func(i, k int) { lengths[i], lengths[k] = lengths[k], lengths[i] })
	mixed, _ := jobsOf(m, rng, lengths)
	b.compare(data, mixed)
}

func TestDigestWhereTreesChange(t *testing.T) {
	c := useFake(t, "strict")
	data := noise(13 << 20)
	b := newHashBench(t, c, 64, len(data))
	m := b.load(data)
	rng := rand.New(rand.NewPCG(3, 4))
	var lengths []int
	for _, unit := range []int{64 << 10, tileChunks * hashChunkBytes, 1 << 20, 2 << 20, 5 << 20} {
		lengths = append(lengths, unit-1, unit, unit+1, unit+hashChunkBytes, unit+hashChunkBytes+1)
	}
	for i, n := range lengths {
		// Alone, and beginning in the middle of a tile, twice.
		for _, list := range [][]int{{n}, {1, n}, {i*2500 + 64, n, n}} {
			if jobs, bytes := jobsOf(m, rng, list); bytes <= len(data) {
				b.compare(data, jobs)
			}
		}
	}
}

func TestDigestRandomJobs(t *testing.T) {
	c := useFake(t)
	data := noise(24 << 20)
	b := newHashBench(t, c, 700, len(data))
	m := b.load(data)
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		var lengths []int
		for left := len(data); len(lengths) < 700; {
			n := rng.IntN(1<<rng.IntN(20) + 1)
			if left -= (n + 63) / 64 * 64; left < 0 {
				break
			}
			lengths = append(lengths, n)
		}
		jobs, _ := jobsOf(m, rng, lengths)
		rng.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
		b.compare(data, jobs)
	}
}

// The digests of a file's pieces yield its root.
func TestDigestPieces(t *testing.T) {
	const pieceBytes = 64 << 10
	c := useFake(t)
	data := noise(40*pieceBytes + 12345)
	b := newHashBench(t, c, 41, len(data))
	m := b.load(data)
	var jobs []HashJob
	for off := 0; off < len(data); off += pieceBytes {
		jobs = append(jobs, HashJob{
			Memory: m, Offset: off, Len: min(pieceBytes, len(data)-off), Counter: uint64(off / hashChunkBytes),
		})
	}
	b.digest(jobs)
	tree := manifest.NewTree(manifest.BLAKE3)
	for i := range jobs {
		tree.Push(b.hasher.Digest(i))
	}
	root := tree.Root()
	b.digest([]HashJob{{Memory: m, Len: len(data), Root: true}})
	if got := b.hasher.Digest(0); got != root {
		t.Errorf("hash %x, of the pieces' digests %x", got, root)
	}
}

// The vectors of BLAKE3's authors (test_vectors.json): their input repeats the
// bytes from 0 to 250.
func TestDigestVectors(t *testing.T) {
	vectors := []struct {
		bytes int
		hash  string
	}{
		{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
		{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
		{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
		{1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"},
		{2048, "e776b6028c7cd22a4d0ba182a8bf62205d2ef576467e838ed6f2529b85fba24a"},
		{3073, "7124b49501012f81cc7f11ca069ec9226cecb8a2c850cfe644e327d22d3e1cd3"},
		{8193, "bab6c09cb8ce8cf459261398d2e7aef35700bf488116ceb94a36d0f5f1b7bc3b"},
		{31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"},
	}
	data := make([]byte, 31744)
	for i := range data {
		data[i] = byte(i % 251)
	}
	b := newHashBench(t, useFake(t), len(vectors), len(data)*2)
	m := b.load(data)
	var jobs []HashJob
	for _, v := range vectors {
		jobs = append(jobs, HashJob{Memory: m, Len: v.bytes, Root: true})
	}
	b.digest(jobs)
	for i, v := range vectors {
		if got := b.hasher.Digest(i); hex.EncodeToString(got[:]) != v.hash {
			t.Errorf("hash of %d bytes %x, want %s", v.bytes, got, v.hash)
		}
	}
}

// The digest depends only on a job's bytes, wherever they are.
func TestDigestDependsOnTheJobAlone(t *testing.T) {
	c := useFake(t)
	piece := noise(3000)
	data := noise(64 << 10)
	b := newHashBench(t, c, 2, 8192)
	var before [32]byte
	for i, at := range []int{0, 64, 4096, len(data) - 3008} {
		for k := range data {
			data[k] = byte(i * 77)
		}
		copy(data[at:], piece)
		b.digest([]HashJob{{Memory: b.load(data), Offset: at, Len: len(piece), Counter: 9}})
		if got := b.hasher.Digest(0); i > 0 && got != before {
			t.Errorf("at %d the digest is %x, before it was %x", at, got, before)
		} else {
			before = got
		}
	}
}

func FuzzDigest(f *testing.F) {
	c := useFake(f)
	data := noise(2 << 20)
	b := newHashBench(f, c, 4, 2*len(data))
	m := b.load(data)
	for _, n := range []int{0, 1, 64, 1024, 1025, 128 << 10, 128<<10 + 1, 1 << 20} {
		f.Add(n, n/2, uint64(n)<<22, n%2 == 0)
	}
	f.Fuzz(func(t *testing.T, n, before int, counter uint64, root bool) {
		n, before = max(0, n)%(len(data)+1), max(0, before)%(len(data)+1)
		b.t = t
		at := min(before, len(data)-n) / 64 * 64
		j := HashJob{Memory: m, Offset: at, Len: n, Counter: counter, Root: root}
		if root {
			j.Counter = 0
		}
		// The preceding job shifts it among the tiles.
		b.compare(data, []HashJob{{Memory: m, Len: before}, j, {Memory: m, Len: before % 4096, Counter: counter}})
	})
}
