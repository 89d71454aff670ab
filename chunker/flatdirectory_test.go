package chunker

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/treetest"
)

// heapDuringWalk walks a flat directory of n files and returns the live heap in
// the middle of it.
func heapDuringWalk(t testing.TB, n, budget int) int64 {
	t.Helper()
	dir := treetest.FastDir(t)
	for i := range n {
		f, err := unix.Open(fmt.Sprintf("%s/file-with-a-name-%08d", dir, i), unix.O_CREAT|unix.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(f)
	}
	tree, err := OpenLocal([]Source{{dir, "."}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	w := tree.Walk(true)
	defer w.Close()
	w.names.Budget = budget
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range n + 1 {
		f, err := w.Next()
		if err != nil || f.Problem != nil {
			t.Fatal(err, f)
		}
		if i == n/2 {
			runtime.GC()
			runtime.ReadMemStats(&during)
		}
	}
	if _, err := w.Next(); err != io.EOF {
		t.Fatal(err)
	}
	return int64(during.HeapAlloc) - int64(before.HeapAlloc)
}

func TestFlatDirectoryMemory(t *testing.T) {
	const budget = 512 << 10
	small, large := heapDuringWalk(t, 20_000, budget), heapDuringWalk(t, 100_000, budget)
	if large-small > 1<<20 {
		t.Errorf("%d bytes of heap for 20,000 names, %d for 100,000", small, large)
	}
}

// BenchmarkFlatDirectory reports the heap that walking one directory needs.
func BenchmarkFlatDirectory(b *testing.B) {
	for _, n := range []int{200_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(heapDuringWalk(b, n, sorted.BudgetBytes)), "heap-B")
			}
		})
	}
}
