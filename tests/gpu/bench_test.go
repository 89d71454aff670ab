package gpu

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goal is what a copy with slots in a GPU is to reach of the rate of one with
// slots in host memory and the same digests.
const goal = 0.90

// rounds is how many copies a median is taken of.
const rounds = 5

// kind is one way to copy the file.
type kind struct {
	name string
	ends ends
	hash string
}

// kinds are pushes: the client is the source. The second is what the later ones
// are compared with.
var kinds = []kind{
	{"host, xxh3", ends{}, "xxh3"},
	{"host, blake3", ends{}, "blake3"},
	{"GPU at source", ends{client: true}, "blake3"},
	{"GPU at sink", ends{server: true}, "blake3"},
	{"GPU at both", ends{client: true, server: true}, "blake3"},
}

// measured is what the copies of a kind took.
type measured struct{ seconds, firstByteMs []float64 }

func (m *measured) rateGBps(bytes int64) float64 { return float64(bytes) / median(m.seconds) / 1e9 }

func median(x []float64) float64 {
	sorted := slices.Sorted(slices.Values(x))
	return sorted[len(sorted)/2]
}

// BenchmarkStagedTransfer copies a file over 127.0.0.1 with slots in host
// memory and in a GPU, and shows the ratios.
func BenchmarkStagedTransfer(b *testing.B) {
	m := realMachine(b)
	bytes := benchBytes(b, m)
	for _, chunkMiB := range []int{1, 4} {
		b.Run(fmt.Sprintf("chunk=%dMiB", chunkMiB), func(b *testing.B) {
			for range b.N {
				took := measure(b, m, bytes, chunkMiB, rounds)
				host := took[1].rateGBps(bytes)
				for i, unit := range []string{2: "source/host", 3: "sink/host", 4: "both/host"} {
					if unit != "" {
						b.ReportMetric(took[i].rateGBps(bytes)/host, unit)
					}
				}
				b.Log(report(m, bytes, chunkMiB, took))
			}
			b.ReportMetric(0, "ns/op") // of all copies together says nothing
		})
	}
}

// TestReport tries the benchmark over the fake: its figures mean nothing.
func TestReport(t *testing.T) {
	const bytes = 8 * mib
	m := fakeMachine(t)
	text := report(m, bytes, 1, measure(t, m, bytes, 1, 1))
	t.Log(text)
	for _, k := range kinds {
		if !strings.Contains(text, "\n"+k.name) {
			t.Errorf("the report does not tell of %q: %s", k.name, text)
		}
	}
}

// benchBytes is how much to copy at a time: there must be room for it twice.
func benchBytes(b *testing.B, m *machine) int64 {
	b.Helper()
	sizeMiB, roomMiB := int64(8192), (freeBytes(os.TempDir())/mib-512)/2
	if strings.HasPrefix(m.name, "Fake") {
		sizeMiB = 256
	}
	if given := os.Getenv("GDRCP_GPU_BENCH_MIB"); given != "" {
		n, err := strconv.ParseInt(given, 10, 32)
		if err != nil || n < 1 {
			b.Fatalf("GDRCP_GPU_BENCH_MIB=%s is no number of MiB", given)
		}
		sizeMiB = n
	} else if roomMiB >= 512 {
		sizeMiB = min(sizeMiB, roomMiB)
	}
	if roomMiB < sizeMiB {
		b.Fatalf("two files of %d MiB do not fit into %s: set GDRCP_GPU_BENCH_MIB, or TMPDIR", sizeMiB, os.TempDir())
	}
	return sizeMiB * mib
}

// measure copies a file n times in each way, in turn, after a copy that nobody
// measures. It checks that all made the same of it.
func measure(t testing.TB, m *machine, bytes int64, chunkMiB, n int) []measured {
	t.Helper()
	src, root := t.TempDir()+"/file", t.TempDir()
	makeFile(t, src, bytes, 1)
	url := m.serve(t, root)
	roots, took := map[string]any{}, make([]measured, len(kinds))
	copyBy := func(k *kind) map[string]any {
		options := append([]string{"--hash", k.hash, "--slots", "64", "--chunk-size", fmt.Sprintf("%dMiB", chunkMiB)}, k.ends.args()...)
		summary := m.copy(t, append(options, src, url+"copy")...)
		k.ends.check(t, summary)
		if before := roots[k.hash]; before != nil && summary["root"] != before {
			t.Fatalf("%s has the root %v, another copy had %v", k.name, summary["root"], before)
		}
		roots[k.hash] = summary["root"]
		if err := os.Remove(root + "/copy"); err != nil {
			t.Fatal(err)
		}
		return summary
	}
	copyBy(&kinds[len(kinds)-1])
	for range n {
		for i := range kinds {
			summary := copyBy(&kinds[i])
			seconds, _ := summary["seconds"].(float64)
			first, _ := summary["first_byte_ms"].(float64)
			if seconds <= 0 || first <= 0 {
				t.Fatalf("%s took no time: %v", kinds[i].name, summary)
			}
			took[i].seconds, took[i].firstByteMs = append(took[i].seconds, seconds), append(took[i].firstByteMs, first)
		}
	}
	return took
}

// report is a table of the medians, with the range of the times.
func report(m *machine, bytes int64, chunkMiB int, took []measured) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s, %d MiB over 127.0.0.1, 64 slots of %d MiB, medians of %d (goal: %.2f of host, blake3)\n",
		m.name, bytes/mib, chunkMiB, len(took[0].seconds), goal)
	fmt.Fprintf(&text, "%-14s %8s %17s %7s %8s %14s\n", "slots", "s", "from to", "GB/s", "of host", "first byte ms")
	host := took[1].rateGBps(bytes)
	for i, k := range kinds {
		rate := took[i].rateGBps(bytes)
		fmt.Fprintf(&text, "%-14s %8.3f %8.3f %8.3f %7.2f %8.2f %14.0f", k.name, median(took[i].seconds), slices.Min(took[i].seconds),
			slices.Max(took[i].seconds), rate, rate/host, median(took[i].firstByteMs))
		if k.ends != (ends{}) && rate/host < goal {
			text.WriteString("  below the goal")
		}
		text.WriteString("\n")
	}
	return text.String()
}
