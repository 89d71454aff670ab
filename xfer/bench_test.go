package xfer_test

import (
	"path/filepath"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func BenchmarkPushFile(b *testing.B) {
	src, s := b.TempDir(), serve(b, tcpWay(b))
	f := filepath.Join(src, "f")
	const n = 512 << 20
	write(b, f, randomBytes(b, n))
	b.SetBytes(n)
	b.ReportAllocs()
	for b.Loop() {
		o := tcpWay(b).options(b)
		o.Recursive = false
		if _, err := tcpWay(b).client(rdmatest.Faults{}).Push(b.Context(), []string{f}, s.ep, "out", o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMemory(b *testing.B) {
	s := serve(b, tcpWay(b))
	const n = 1 << 30
	b.SetBytes(n)
	for b.Loop() {
		o := tcpWay(b).options(b)
		if _, err := tcpWay(b).client(rdmatest.Faults{}).BenchBandwidth(b.Context(), s.ep, n, o); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLatency(b *testing.B) {
	s := serve(b, tcpWay(b))
	var out []xfer.Latency
	for b.Loop() {
		var err error
		if out, err = tcpWay(b).client(rdmatest.Faults{}).BenchLatency(b.Context(), s.ep, 2000, tcpWay(b).options(b)); err != nil {
			b.Fatal(err)
		}
	}
	for _, l := range out {
		b.ReportMetric(float64(l.Median.Microseconds()), l.Op+"-µs")
	}
}
