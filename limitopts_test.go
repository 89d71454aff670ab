package main

import (
	"strings"
	"testing"
)

// What rsync 3.5 makes of the same words.
func TestParseRate(t *testing.T) {
	for _, tc := range []struct {
		given string
		want  int64 // -1: refused
	}{
		{"100", 100 << 10}, {"1.5m", 3 << 19}, {"1.5M", 3 << 19}, {"1MiB", 1 << 20}, {"1mb", 1e6}, {"5kib", 5 << 10}, {"1000KB", 1e6}, {".5m", 1 << 19},
		{"1.m", 1 << 20}, {"512b", 512}, {"0", 0}, {"0.0g", 0}, {"1g+1", 1<<30 + 1}, {"1g-1", 1<<30 - 1}, {"2t", 2 << 40}, {"1P", 1 << 50}, {"513B-1", 512},
		{"511b", -1}, {"7B", -1}, {"-1", -1}, {"1x", -1}, {"1e3", -1}, {"", -1}, {".", -1}, {"k", -1}, {"1 m", -1}, {"1m/s", -1}, {"1g+2", -1}, {"0x10", -1},
		{"99999999999p", -1}, {"NaN", -1}, {"+5", -1},
	} {
		got, err := parseRate(tc.given)
		if (err != nil) != (tc.want < 0) || err == nil && got != tc.want {
			t.Errorf("%q: %d, %v, want %d", tc.given, got, err, tc.want)
		}
	}
}

func TestBadLimits(t *testing.T) {
	for _, args := range []string{"--bwlimit 7b x rdma://h/x", "--bwlimit fast x rdma://h/x", "serve --root . --bwlimit 1x"} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage)
		if !strings.HasPrefix(r.err, "gdrcp: --bwlimit ") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: it wrote %q", args, r.err)
		}
	}
}
