package cli

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

// A copy that makes no progress ends after --timeout, though the server is there.
func TestTimeout(t *testing.T) {
	s := startServer(t, "--bwlimit", "512b")
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"f": strings.Repeat("x", 1<<20)})
	makeFiles(t, s.root, map[string]string{"f": strings.Repeat("x", 1<<20)})
	for _, operands := range [][]string{{dir + "/f", s.url("x")}, {s.url("f"), dir + "/y"}} {
		r := gdrcp(t, append(operands, "--timeout", "1", "--transport", "tcp")...).want(t, exitError)
		if !strings.HasPrefix(r.err, "gdrcp: no progress for 1s: ") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("it wrote %q", r.err)
		}
	}
	gdrcp(t, "--timeout", "0", dir+"/f", s.url("none/x")).want(t, exitError)
	gdrcp(t, "--timeout", "-1", dir+"/f", s.url("x")).want(t, exitUsage)
	gdrcp(t, "--timeout", "1.5", dir+"/f", s.url("x")).want(t, exitUsage)
}

// --max-memory makes the ring as small as it says, or is refused.
func TestMaxMemory(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"f": strings.Repeat("x", 3<<20)})
	for _, tc := range []struct {
		args  string
		slots string // of those told with -v, or empty
		code  int
	}{
		{"--max-memory 1G", "16 slots of 1MiB", exitOK},
		{"--max-memory 6M", "4 slots of 1MiB", exitOK}, // a source has one more, and each has a header
		{"--max-memory 6M --slots 3", "3 slots of 1MiB", exitOK},
		{"--max-memory 6M --chunk-size 2M", "1 slots of 2MiB", exitOK},
		{"--max-memory 2M", "", exitUsage},
		{"--max-memory 64", "", exitUsage},
		{"--max-memory 6M --chunk-size 4M", "", exitUsage},
	} {
		r := gdrcp(t, append(strings.Fields(tc.args), "-v", "--transport", "tcp", dir+"/f", s.url("x"))...).want(t, tc.code)
		if tc.code == exitOK && !strings.Contains(r.err, ", "+tc.slots) || tc.code == exitUsage && strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: it wrote %q", tc.args, r.err)
		}
		fewer := strings.Contains(r.err, "as --max-memory has room for no more")
		if want := strings.HasPrefix(tc.slots, "4 ") || strings.HasPrefix(tc.slots, "1 "); fewer != want {
			t.Errorf("%s: it wrote %q", tc.args, r.err)
		}
	}
	r := gdrcp(t, "-v", "--max-memory", "6M", "--transport", "tcp", s.url("x"), dir+"/back").want(t, exitOK)
	if !strings.Contains(r.err, ", 5 slots of 1MiB") {
		t.Errorf("it wrote %q", r.err)
	}
}
