//go:build linux && cgo

package gpu

import (
	"fmt"
	"testing"
)

// BenchmarkHashDevice digests pieces in a GPU's memory. A round is a Begin and
// a wait for its digests; with two hashers, each in a stream, the table and the
// digests of one are copied while the other works.
func BenchmarkHashDevice(b *testing.B) {
	for _, shape := range []struct{ jobs, jobBytes int }{{64, 1 << 20}, {64, 4 << 20}, {256, 1 << 20}} {
		for _, hashers := range []int{1, 2} {
			b.Run(fmt.Sprintf("%dx%dMiB/hashers=%d", shape.jobs, shape.jobBytes>>20, hashers), func(b *testing.B) {
				benchHash(b, shape.jobs, shape.jobBytes, hashers)
			})
		}
	}
}

func benchHash(b *testing.B, jobCount, jobBytes, hashers int) {
	c := useReal(b)
	data := noise(jobCount * jobBytes)
	benches := make([]*hashBench, hashers)
	for i := range benches {
		benches[i] = newHashBench(b, c, jobCount, len(data))
	}
	m := benches[0].load(data)
	jobs := make([]HashJob, jobCount)
	for i := range jobs {
		jobs[i] = HashJob{Memory: m, Offset: i * jobBytes, Len: jobBytes, Counter: uint64(i)}
	}
	for _, bench := range benches {
		bench.compare(data, jobs) // this also warms up the kernels
	}
	b.SetBytes(int64(len(data)))
	b.ResetTimer()
	for i := range b.N {
		bench := benches[i%hashers]
		if err := bench.hasher.Begin(bench.stream, jobs); err != nil {
			b.Fatal(err)
		}
		if hashers == 1 {
			if err := bench.stream.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for _, bench := range benches {
		if err := bench.stream.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	reportRate(b, len(data))
}

// reportRate reports gigabytes (10^9) per second.
func reportRate(b *testing.B, roundBytes int) {
	b.ReportMetric(float64(roundBytes)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
}

// BenchmarkPinnedCopy copies 64 MiB between pinned host memory and a GPU in pieces that
// are queued together. A single piece shows the limit of the driver and the bus.
func BenchmarkPinnedCopy(b *testing.B) {
	const roundBytes = 64 << 20
	for _, pieceBytes := range []int{roundBytes, 4 << 20, 1 << 20} {
		for _, to := range []string{"device", "host"} {
			b.Run(fmt.Sprintf("to-%s/%dx%dMiB", to, roundBytes/pieceBytes, pieceBytes>>20), func(b *testing.B) {
				benchCopy(b, roundBytes, pieceBytes, to == "device")
			})
		}
	}
}

func benchCopy(b *testing.B, roundBytes, pieceBytes int, toDevice bool) {
	c := useReal(b)
	s, m, host := newStream(b, c), alloc(b, c, roundBytes), pinned(b, c, roundBytes)
	copy(host, noise(roundBytes))
	b.SetBytes(int64(roundBytes))
	b.ResetTimer()
	for range b.N {
		for at := 0; at < roundBytes; at += pieceBytes {
			var err error
			if toDevice {
				err = s.ToDevice(m, at, host[at:at+pieceBytes])
			} else {
				err = s.ToHost(host[at:at+pieceBytes], m, at)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	reportRate(b, roundBytes)
}
