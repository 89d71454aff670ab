package xfer_test

import (
	"path/filepath"
	"testing"

	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

func BenchmarkPushFile(b *testing.B) {
	src, s := b.TempDir(), serve(b, tcp.New())
	f := filepath.Join(src, "f")
	const n = 512 << 20
	write(b, f, randomBytes(b, n))
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		o := options(b)
		o.Recursive = false
		if _, err := client().Push(b.Context(), []string{f}, s.ep, "out", o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	s := serve(b, tcp.New())
	const n = 1 << 30
	b.SetBytes(n)
	for b.Loop() {
		o := options(b)
		if _, err := client().BenchBandwidth(b.Context(), s.ep, n, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLatency(b *testing.B) {
	s := serve(b, tcp.New())
	var out []xfer.Latency
	for b.Loop() {
		var err error
		if out, err = client().BenchLatency(b.Context(), s.ep, 2000, options(b)); err != nil {
			b.Fatal(err)
		}
	}
	for _, l := range out {
		b.ReportMetric(float64(l.Median.Microseconds()), l.Op+"-µs")
	}
}
