package cli

import (
	"maps"
	"os"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// The expected values are rsync 3.5's.
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

// A copy without progress ends after --timeout, even if the server is reachable.
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

// --max-memory limits the ring, or is refused.
func TestMaxMemory(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"f": strings.Repeat("x", 3<<20)})
	for _, tc := range []struct {
		args  string
		slots string // as printed with -v, or empty
		code  int
	}{
		{"--max-memory 1G", "16 slots of 1MiB", exitOK},
		{"--max-memory 6M", "4 slots of 1MiB", exitOK}, // a source has one more slot, and each has a header
		{"--max-memory 6M --slots 3", "3 slots of 1MiB", exitOK},
		{"--max-memory 6M --chunk-size 2M", "1 slot of 2MiB", exitOK},
		{"--max-memory 2M", "", exitUsage},
		{"--max-memory 64", "", exitUsage},
		{"--max-memory 6M --chunk-size 4M", "", exitUsage},
	} {
		r := gdrcp(t, append(strings.Fields(tc.args), "-v", "--transport", "tcp", dir+"/f", s.url("x"))...).want(t, tc.code)
		if tc.code == exitOK && !strings.Contains(r.err, ", "+tc.slots) || tc.code == exitUsage && strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: it wrote %q", tc.args, r.err)
		}
		fewer := strings.Contains(r.err, "for --max-memory has no room for more")
		if want := strings.HasPrefix(tc.slots, "4 ") || strings.HasPrefix(tc.slots, "1 "); fewer != want {
			t.Errorf("%s: it wrote %q", tc.args, r.err)
		}
	}
	r := gdrcp(t, "-v", "--max-memory", "6M", "--transport", "tcp", s.url("x"), dir+"/back").want(t, exitOK)
	if !strings.Contains(r.err, ", 5 slots of 1MiB") {
		t.Errorf("it wrote %q", r.err)
	}
}

// --max-size and --min-size skip the same files as rsync, and --delete does not delete
// those either.
func TestSizesOfFiles(t *testing.T) {
	rsync := rsyncHere(t)
	s := startServer(t)
	dir := t.TempDir()
	sized := func(n int) string { return strings.Repeat("x", n) }
	makeFiles(t, dir, map[string]string{
		"t/0": "", "t/1": sized(1), "t/999": sized(999), "t/1000": sized(1000), "t/1001": sized(1001), "t/1024": sized(1024), "t/d/1025": sized(1025), "t/1536": sized(1536),
		"t/big": sized(1 << 20),
	})
	if err := os.Link(dir+"/t/big", dir+"/t/bigger"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("big", dir+"/t/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/t", s.root+"/t"); err != nil {
		t.Fatal(err)
	}
	for i, options := range []string{
		"--max-size 1000", "--max-size=1K", "--max-size=1kb", "--max-size 1.5K", "--max-size 1KiB-1", "--max-size 1K+1", "--max-size 0", "--max-size 1000b",
		"--min-size 1000", "--min-size 1m", "--min-size 1M+1", "--min-size 0", "--min-size=1K --max-size=1.5k", "--max-size=999 --min-size=1001", "-H --max-size 1K", "-H --min-size 1K",
		"--delete --max-size 10", "--delete --min-size 10",
	} {
		if !rdmatest.Picked(t, options) {
			continue
		}
		// An existing file is not changed.
		before := map[string]string{"big": "old", "1": "old and longer", "gone": "g"}
		name := "case" + string(rune('a'+i))
		theirs, ours, pushed := dir+"/theirs"+name, dir+"/ours"+name, s.root+"/"+name
		for _, to := range []string{theirs, ours, pushed} {
			makeFiles(t, to, before)
		}
		args := append([]string{"-a"}, strings.Fields(options)...)
		rsync(append(args, "-I", s.root+"/t/", theirs)...)
		gdrcp(t, append(args, s.url("t/."), ours)...).want(t, exitOK)
		gdrcp(t, append(args, s.root+"/t/.", s.url(name))...).want(t, exitOK)
		want := listFiles(t, theirs)
		for what, to := range map[string]string{"pulled": ours, "pushed": pushed} {
			if got := listFiles(t, to); !maps.Equal(got, want) {
				t.Errorf("%s: %s %v, rsync %v", options, what, lengths(got), lengths(want))
			}
		}
	}
	r := gdrcp(t, "-av", "--max-size", "1000", "--min-size", "1", s.url("t/."), dir+"/told").want(t, exitOK)
	if !strings.Contains(r.err, "\n1001: left out, not there and larger than --max-size\n") || !strings.Contains(r.err, "\n0: left out, not there and smaller than --min-size\n") {
		t.Errorf("with -v it wrote\n%s", r.err)
	}
}

// Skipped entries are reported as kept only if they exist at the destination.
func TestLeftOutIsNotKept(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/big": "larger", "t/large": "larger than", "t/d/none": "N", "to/a": "old", "to/big": "old"})
	makeFiles(t, s.root, map[string]string{"to/a": "old", "to/big": "old"})
	for _, to := range []string{dir + "/to", s.url("to")} {
		for _, c := range []struct {
			option                        string
			files, kept, leftOut, skipped float64
			last                          string
		}{
			{"--max-size=3", 2, 1, 1, 6, "; 1 kept, not compared; 1 left out"},
			{"--existing", 2, 0, 3, 0, "; 3 left out"},
		} {
			args := []string{"-rn", c.option, dir + "/t/.", to}
			e := gdrcp(t, append(args, "--json")...).want(t, exitOK).event(t, "summary")
			if e["files"] != c.files || e["kept"] != c.kept || e["left_out"] != c.leftOut || e["skipped_bytes"] != c.skipped {
				t.Errorf("%s: %v", c.option, e)
			}
			r := gdrcp(t, append(args, "--json", "-v")...).want(t, exitOK)
			if n := strings.Count(r.out, `"outcome":"left_out"`); float64(n) != c.leftOut {
				t.Errorf("%s: %d events in %s", c.option, n, r.out)
			}
			r = gdrcp(t, append(args, "--stats")...).want(t, exitOK)
			if !strings.Contains(r.err, c.last+"\n") || !strings.Contains(r.err, "left out: ") {
				t.Errorf("%s: it wrote %s", c.option, r.err)
			}
		}
	}
}

func lengths(files map[string]string) map[string]int {
	n := make(map[string]int, len(files))
	for name, content := range files {
		n[name] = len(content)
	}
	return n
}

func TestSizesThatAreNone(t *testing.T) {
	for args, want := range map[string]string{
		"--max-size x a h:b":                   `--max-size "x": not a size (write it like 500, 1.5M or 100MB)`,
		"--min-size=-1 a h:b":                  `--min-size "-1": not a size (write it like 500, 1.5M or 100MB)`,
		"--max-size 0-1 a h:b":                 `--max-size "0-1": not a size (write it like 500, 1.5M or 100MB)`,
		"--max-size 9000P a h:b":               `--max-size "9000P": too large`,
		"-c --size-only a a2":                  "--checksum excludes --size-only and --append-verify",
		"-c --append-verify a a2":              "--checksum excludes --size-only and --append-verify",
		"--append-verify --manifest m a a2":    "a manifest needs a whole copy",
		"--max-size 1 --write-manifest m a a2": "a manifest needs a whole copy: leave out --update, --size-only, --append-verify, --ignore-existing, --existing, --max-size, --min-size or --dry-run",
	} {
		if r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage); !strings.HasPrefix(r.err, "gdrcp: "+want) {
			t.Errorf("gdrcp %s wrote\n%swant\ngdrcp: %s", args, r.err, want)
		}
	}
}
