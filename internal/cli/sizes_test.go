package cli

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// --max-size and --min-size leave to the destination what rsync leaves to it, and have
// --delete leave that alone, too.
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
		// A file that is there already stays, with other bytes.
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
	if !strings.Contains(r.err, "\n1001: kept, larger than --max-size\n") || !strings.Contains(r.err, "\n0: kept, smaller than --min-size\n") {
		t.Errorf("with -v it wrote\n%s", r.err)
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
		"--max-size 1 --write-manifest m a a2": "a manifest is of a whole copy: not with --update, --size-only, --ignore-existing, --existing, --max-size, --min-size or --dry-run",
	} {
		if r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage); !strings.HasPrefix(r.err, "gdrcp: "+want) {
			t.Errorf("gdrcp %s wrote\n%swant\ngdrcp: %s", args, r.err, want)
		}
	}
}
