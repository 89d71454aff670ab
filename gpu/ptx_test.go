//go:build linux && cgo

package gpu

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// TestPTX runs the committed kernels on a PTX interpreter, and compares their
// results with digests computed by the processor.
func TestPTX(t *testing.T) {
	kernels, err := parsePTX(blake3PTX)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(7, 8))
	// With -short, as under the race detector, an eighth of the lengths.
	tiny := []int{0, 1, 3, 4, 63, 64, 65, 127, 1023, 1024, 1025, 2048, 2049, 3000, 5000}
	lists := [][]int{tiny, {128 << 10}, {100, 128 << 10, 70 << 10}}
	if !testing.Short() {
		lists = append(lists, []int{1 << 20, 1 << 20}, []int{1, 700000, 400000}, []int{2000, 300001, 0, 64 << 10})
		for range 4 {
			var random []int
			for range 40 {
				random = append(random, rng.IntN(1<<rng.IntN(18)+1))
			}
			lists = append(lists, random)
		}
	}
	for _, lengths := range lists {
		jobs, bytes := jobsOf(nil, rng, lengths)
		runPTX(t, kernels, jobs, noise(bytes))
	}
}

// runPTX does what Begin does, and checks the digests.
func runPTX(t *testing.T, kernels map[string]*ptxKernel, jobs []HashJob, data []byte) {
	t.Helper()
	table := make([]byte, (tableBytes(len(jobs))+63)/64*64)
	tableAt := ptxBase + uint64(len(data))
	chunks, wide := putTable(table, jobs, func(i int) uint64 { return ptxBase + uint64(jobs[i].Offset) })
	global := append(append([]byte(nil), data...), table...)
	digestsAt := ptxBase + uint64(len(global))
	cvsAt := digestsAt + uint64(len(jobs)*digestBytes)
	global = append(global, make([]byte, (len(jobs)+chunks)*digestBytes)...)

	kernels["gdr_blake3_tiles"].run(global, (chunks+tileChunks-1)/tileChunks,
		tableAt, uint64(len(jobs)), uint64(chunks), cvsAt, digestsAt)
	if wide > 0 {
		kernels["gdr_blake3_join"].run(global, wide, tableAt, tableAt+uint64(len(jobs)*jobLineBytes), cvsAt, digestsAt)
	}
	for i := range jobs {
		got := [32]byte(global[digestsAt-ptxBase+uint64(i*digestBytes):])
		if want := onCPU(data, &jobs[i]); got != want {
			t.Fatalf("job %d of %d, %d bytes: %x, want %x", i, len(jobs), jobs[i].Len, got, want)
		}
	}
}

// The statements of NewHasher and docs/guide about GPUs and drivers depend on this.
func TestPTXTarget(t *testing.T) {
	for what, line := range map[string]string{
		"compute capability 7.0":  `(?m)^\.target sm_70$`,
		"drivers since CUDA 9.0":  `(?m)^\.version 6\.0$`,
		"128 threads of a block":  `(?m)^\.maxntid 128, 1, 1$`,
		"addresses of eight byte": `(?m)^\.address_size 64$`,
	} {
		if !regexp.MustCompile(line).MatchString(blake3PTX) {
			t.Errorf("not for %s: no %s", what, line)
		}
	}
	if regexp.MustCompile(`\.local|\bcall\b`).MatchString(blake3PTX) {
		t.Error("local memory or a call: something was not inlined, or an array is indexed by a variable")
	}
}
