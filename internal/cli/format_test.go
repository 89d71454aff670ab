package cli

import (
	"math"
	"testing"
)

func TestParseSize(t *testing.T) {
	for in, want := range map[string]int64{
		"0": 0, "65536": 65536, "12B": 12, "64K": 64 << 10, "64k": 64 << 10, "64KiB": 64 << 10, "1M": 1 << 20, "1MiB": 1 << 20,
		"3G": 3 << 30, "2TiB": 2 << 40, "9223372036854775807": math.MaxInt64,
	} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "K", "iB", "1iB", "1MB", "1.5G", "-1", "+1", " 1", "1 M", "1Mi", "1X", "9223372036854775808", "9000000000G", "0x10", "1_000"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q: %d, want an error", in, got)
		}
	}
}

func TestSizeTexts(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 100: "100", 64 << 10: "64KiB", 1 << 20: "1MiB", 3 << 29: "1536MiB", 1 << 30: "1GiB"} {
		got := sizeText(n)
		if back, err := parseSize(got); got != want || back != n || err != nil {
			t.Errorf("%d: %s, which is %d, %v; want %s", n, got, back, err, want)
		}
	}
	for n, want := range map[float64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 2 << 30: "2.0 GiB", 1 << 62: "4096.0 PiB"} {
		if got := bytesText(n, 1); got != want {
			t.Errorf("%f: %s, want %s", n, got, want)
		}
	}
}
