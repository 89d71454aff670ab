package cli

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/remote"
	"gdrcp/rdma/rdmatest"
)

// rsyncHere returns a function that runs rsync, the reference for options of the same
// name.
func rsyncHere(t *testing.T) func(args ...string) string {
	t.Helper()
	tool, err := exec.LookPath("rsync")
	if err != nil {
		t.Skip("rsync is not installed (apt-get install rsync)")
	}
	return func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("rsync %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
}

// Every option that rsync lists exists here too, or its error names an alternative in
// one line.
func TestEveryOptionOfRsyncIsKnown(t *testing.T) {
	help := rsyncHere(t)("--help")
	_, help, found := strings.Cut(help, "\nOptions\n")
	if !found {
		t.Fatalf("rsync --help has another form:\n%s", help)
	}
	known := everyOptionOfCopy()
	listed := regexp.MustCompile(`(?:^| )(--?[A-Za-z0-9@][-A-Za-z0-9]*)`)
	n := 0
	for line := range strings.Lines(help) {
		names, _, _ := strings.Cut(line, "  ")
		if !strings.HasPrefix(names, "-") {
			continue
		}
		for _, m := range listed.FindAllStringSubmatch(names, -1) {
			name := strings.TrimLeft(m[1], "-")
			if name == "V" || name == "OPTION" || name == "no-OPTION" {
				continue // prints its version; not an option
			}
			n++
			if _, isOurs := known[name]; !isOurs && args.Elsewhere(name) == nil {
				t.Errorf("%s of rsync is no option here, and nothing is said of it", m[1])
			}
		}
	}
	if n < 150 {
		t.Errorf("only %d options of rsync were seen", n)
	}
}

func everyOptionOfCopy() map[string]args.Option {
	p, _, _ := newProgram()
	return args.OptionsOf(args.FindCommand(p.app().Commands, args.CopyName).Flags)
}

// An option that gdrcp lacks is refused in one line that names an alternative, at any
// position in the command line, before anything is connected.
func TestOptionsOfRsyncThatAreNotHere(t *testing.T) {
	for args, want := range map[string]string{
		"-avi a h:b":                "gdrcp has no -i: -v tells every entry, -n -v what would be copied; a key of ssh goes by -e 'ssh -i KEY'",
		"a h:b --itemize-changes":   "gdrcp has no --itemize-changes: -v tells every entry, -n -v what would be copied; a key of ssh goes by -e 'ssh -i KEY'",
		"--remove-source-files a b": "gdrcp has no --remove-source-files: it changes nothing at the source: remove the files when the copy has ended with exit code 0",
		"--mkpath a h:b/c":          "gdrcp has no --mkpath: the directory that DST is in has to exist: make it with mkdir -p before",
		"--chmod=D755,F644 a h:b":   "gdrcp has no --chmod: -p keeps the modes of the source: change them with chmod -R at the destination afterwards",
		"--chown u:g a h:b":         "gdrcp has no --chown: -o and -g keep owner and group of the source: change them with chown -R at the destination afterwards",
		"-avR a/b h:c":              "gdrcp has no -R: cd to where the paths begin and name them in a list: gdrcp --files-from LIST . DST",
		"-avm a h:b":                "gdrcp has no -m: list the files alone: find . -type f -print0 | gdrcp -0 --files-from - . DST",
		"--list-only h:b":           "gdrcp has no --list-only: -n -v lists every entry and copies nothing",
		"--no-W a h:b":              "gdrcp has no --no-W: it always copies whole files",
		"-F a h:b":                  "gdrcp has no -F: say what is left out with --exclude or --exclude-from; a configuration of ssh goes by -e 'ssh -F FILE'",
		"--info=name a h:b":         `--info "name": gdrcp has only the flags progress, progress2 and stats; -v tells every entry`,
		"--info=progress,foo a h:b": `--info "progress,foo": gdrcp has only the flags progress, progress2 and stats; -v tells every entry`,
		"serve --acls":              "unknown option --acls of gdrcp serve (gdrcp serve --help lists them)",
		"-Q a h:b":                  "unknown option -Q (gdrcp --help lists them)",
	} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage)
		if r.err != "gdrcp: "+want+"\n" || r.out != "" {
			t.Errorf("gdrcp %s wrote\n%s%swant\ngdrcp: %s", args, r.out, r.err, want)
		}
	}
}

// Common command lines of rsync copy the same, without a message if nothing differs.
func TestCommandLinesOfHabit(t *testing.T) {
	rsync := rsyncHere(t)
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": strings.Repeat("again ", 400_000), "t/sub/b": "b", "t/empty/": ""})
	for i, options := range []string{
		"-avz", "-avP", "-avzP", "-rlptgoz", "-aW", "-aS", "-avh", "-a --partial --progress", "-a --info=progress2", "-a --stats", "-a --info=stats2,progress0",
		"-as", "-a --whole-file --sparse --human-readable --protect-args --no-progress",
	} {
		if !rdmatest.Picked(t, options) {
			continue
		}
		theirs, ours := filepath.Join(dir, "theirs"+string(rune('a'+i))), "ours"+string(rune('a'+i))
		rsync(append(strings.Fields(options), dir+"/t/", theirs)...)
		r := gdrcp(t, append(strings.Fields(options), dir+"/t", s.url(ours))...).want(t, exitOK)
		if got, want := listFiles(t, filepath.Join(s.root, ours)), listFiles(t, theirs); !maps.Equal(got, want) || len(want) != 3 {
			t.Errorf("%s: got %v, rsync %v", options, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		if strings.Contains(r.err, "--partial") {
			t.Errorf("%s, of which nothing differs, wrote\n%s", options, r.err)
		}
	}
	r := gdrcp(t, "-av", "--partial", "--sparse", dir+"/t", s.url("told")).want(t, exitOK)
	for _, want := range []string{"gdrcp: --sparse: holes stay holes, and zeros of files without holes are written\n"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("with -v it did not write %q but\n%s", want, r.err)
		}
	}
}

// -z means --compress auto, and the last of both options wins.
func TestZCompresses(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": strings.Repeat("again ", 400_000)})
	for options, shrinks := range map[string]bool{"-z": true, "-rz": true, "--compress off -z": true, "-z --compress off": false, "": false} {
		sum := gdrcp(t, append(strings.Fields(options), "--json", dir+"/a", s.url("a"))...).want(t, exitOK).event(t, "summary")
		if shrunk := sum["wire_bytes"].(float64) < sum["bytes"].(float64)/2; shrunk != shrinks {
			t.Errorf("%q: %v bytes took %v on the wire", options, sum["bytes"], sum["wire_bytes"])
		}
	}
}

// --stats prints rsync's numbers under rsync's names.
func TestStatsAreThoseOfRsync(t *testing.T) {
	rsync := rsyncHere(t)
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": strings.Repeat("x", 1_234_567), "t/sub/b": "b", "t/c": "", "theirs/old": "o", "theirs/olds/x": "o"})
	makeFiles(t, s.root, map[string]string{"ours/old": "o", "ours/olds/x": "o"})
	if err := os.Symlink("a", dir+"/t/link"); err != nil {
		t.Fatal(err)
	}
	theirs := rsync("-a", "--delete", "--stats", dir+"/t/", dir+"/theirs")
	r := gdrcp(t, "-a", "--delete", "--stats", dir+"/t/.", s.url("ours")).want(t, exitOK)
	for _, name := range []string{"Number of deleted files", "Number of regular files transferred", "Total transferred file size"} {
		line := regexp.MustCompile(`(?m)^` + name + `: [0-9,]+`).FindString(theirs)
		if line == "" || !strings.Contains("\n"+r.err, "\n"+line) {
			t.Errorf("rsync has %q, and gdrcp\n%s", line, r.err)
		}
	}
	for _, line := range []string{"Number of directories: 2\n", "Number of links: 1\n", "Number of entries not transferred: 0\n", "Number of pieces sent again: 0\n"} {
		if !strings.Contains(r.err, line) {
			t.Errorf("it did not write %q but\n%s", line, r.err)
		}
	}
	r = gdrcp(t, "-a", "--update", "--stats", dir+"/t/.", s.url("ours")).want(t, exitOK)
	if !strings.Contains(r.err, "Number of regular files transferred: 0\n") || !strings.Contains(r.err, "Number of entries not transferred: 3 (kept: 3)\n") {
		t.Errorf("with all kept it wrote\n%s", r.err)
	}
	for options, wants := range map[string]bool{"--info=stats": true, "--info=stats0": false, "": false, "--stats --json": false, "--stats -q": false, "--stats -n": true} {
		r := gdrcp(t, append(strings.Fields(options), dir+"/t/a", s.url("again"))...).want(t, exitOK)
		if told := strings.Contains(r.err, "Total transferred file size: 1,234,567 bytes\n"); told != wants {
			t.Errorf("%q wrote\n%s", options, r.err)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}

// Options of ssh that scp has are distinguished from rsync's by the text after them.
func TestOptionsOfScp(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"22": "a file of that name", "f": "f", "c": "Host x"})
	for args, want := range map[string]string{
		"-P 2222 f h:d":                           "-P 2222: pass options of ssh by -e 'ssh -p 2222'",
		"-P2222 f h:d":                            "-P2222: pass options of ssh by -e 'ssh -p 2222'",
		"-rP 2222 f h:d":                          "-P 2222: pass options of ssh by -e 'ssh -p 2222'",
		"f h:d -P 2222":                           "-P 2222: pass options of ssh by -e 'ssh -p 2222'",
		"-o StrictHostKeyChecking=no f h:d":       "-o StrictHostKeyChecking=no: pass options of ssh by -e 'ssh -o StrictHostKeyChecking=no'",
		"-oPort=22 f h:d":                         "-oPort=22: pass options of ssh by -e 'ssh -o Port=22'",
		"-i /home/x/.ssh/key f h:d":               "-i /home/x/.ssh/key: pass options of ssh by -e 'ssh -i /home/x/.ssh/key'",
		"-i id_ed25519 f h:d":                     "-i id_ed25519: pass options of ssh by -e 'ssh -i id_ed25519'",
		"-J me@bastion:22 f h:d":                  "-J me@bastion:22: pass options of ssh by -e 'ssh -J me@bastion:22'",
		"-F c f h:d":                              "-F c: pass options of ssh by -e 'ssh -F c'",
		"-P 22222 -i id_rsa -r f h:d":             "-P 22222 -i id_rsa: pass options of ssh by -e 'ssh -p 22222 -i id_rsa'",
		"-e slogin -P 2222 f h:d":                 "-P 2222: pass options of ssh by -e 'slogin -p 2222'",
		"-P 2222 -o Port=1 -- f h:d":              "-P 2222 -o Port=1: pass options of ssh by -e 'ssh -p 2222 -o Port=1'",
		"-i f h:d":                                "gdrcp has no -i: -v tells every entry, -n -v what would be copied; a key of ssh goes by -e 'ssh -i KEY'",
		"-aJ f h:d":                               "gdrcp has no -J: -t keeps the times of all entries; a host to jump by goes by -e 'ssh -J HOST'",
		"-i id_rsa h:d":                           "gdrcp has no -i: -v tells every entry, -n -v what would be copied; a key of ssh goes by -e 'ssh -i KEY'",
		"serve -P 2222 --root . --key-file k x y": "unknown option -P of gdrcp serve (gdrcp serve --help lists them)",
	} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage)
		if r.err != "gdrcp: "+want+"\n" {
			t.Errorf("gdrcp %s wrote\n%swant\ngdrcp: %s", args, r.err, want)
		}
	}
	// Others are gdrcp's: -P, and -o with sources of such names.
	s := startServer(t)
	makeFiles(t, dir, map[string]string{"k=v": "k"})
	for _, args := range []string{"-P 22 f", "-o k=v f", "-aP f", "-o f", "-P f", "-rogP 22 k=v"} {
		gdrcp(t, append(strings.Fields(args), s.url(""))...).want(t, exitOK)
	}
	if got := listFiles(t, s.root); len(got) != 3 || got["22"] == "" || got["k=v"] != "k" {
		t.Errorf("got %v", got)
	}
}

// The text suggested for an option of ssh can be pasted into a shell, whatever the
// option's value is.
func TestOptionsOfScpAreQuoted(t *testing.T) {
	for _, value := range []string{"ProxyCommand=nc -X connect %h %p", `ProxyCommand=sh -c "a b"`, "ProxyCommand=it's", `ProxyCommand=it's "both"`} {
		r := gdrcp(t, "-o", value, "f", "h:d").want(t, exitUsage)
		_, quoted, found := strings.Cut(strings.TrimSuffix(r.err, "\n"), ": pass options of ssh by -e ")
		if !found {
			t.Fatalf("it wrote %q", r.err)
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+quoted).Output()
		if err != nil {
			t.Fatalf("sh does not read %s: %v", quoted, err)
		}
		words, err := remote.SplitCommand(string(out))
		if want := []string{"ssh", "-o", value}; err != nil || !slices.Equal(words, want) {
			t.Errorf("%s is %q, %v; want %q", quoted, words, err, want)
		}
	}
}
