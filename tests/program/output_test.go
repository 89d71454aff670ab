package program

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// events decodes the output of --json: one object per line.
func (p *process) events() []map[string]any {
	p.t.Helper()
	var all []map[string]any
	lines := bufio.NewScanner(strings.NewReader(p.stdout.String()))
	for lines.Scan() {
		var e map[string]any
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			p.t.Errorf("%q is no event: %v", lines.Text(), err)
		}
		all = append(all, e)
	}
	return all
}

// event returns the only event of a kind.
func (p *process) event(kind string) map[string]any {
	p.t.Helper()
	var found map[string]any
	for _, e := range p.events() {
		if e["event"] == kind && found != nil {
			p.t.Errorf("two events %q: %s", kind, p)
		}
		if e["event"] == kind {
			found = e
		}
	}
	if found == nil {
		p.t.Fatalf("no event %q: %s", kind, p)
	}
	return found
}

// TestJSON checks the events of copies that succeed and fail.
func TestJSON(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	makeTree(t, s.here+"/tree", 40, 1)
	t.Run("good", func(t *testing.T) {
		p := s.copy(t, "--json", "-rl", s.here+"/tree", s.url("copy")).wantCode(0)
		e := p.event("summary")
		for field, want := range map[string]any{"files": 40.0, "links": 2.0, "verified": true, "transport": "tcp", "failed": 0.0, "hash": "xxh3"} {
			if e[field] != want {
				t.Errorf("%s is %v, want %v", field, e[field], want)
			}
		}
		if e := p.event("connected"); e["transport"] != "tcp" {
			t.Errorf("connected: %v", e)
		}
		if ms, _ := e["first_byte_ms"].(float64); ms <= 0 || ms > 150 {
			t.Logf("first byte after %v ms", ms)
		}
		if p.stderr.String() != "" {
			t.Errorf("with --json, and all well, there is something on stderr: %s", p)
		}
	})
	for _, c := range []struct {
		name string
		args []string
		code int
	}{
		{"no source", []string{s.here + "/none", s.url("x")}, 1},
		{"usage", []string{s.here + "/none"}, 2},
		{"a bad option", []string{"--nonsense", s.here + "/none", s.url("x")}, 2},
		{"a bad value", []string{"--hash", "md5", s.here + "/tree", s.url("x")}, 2},
		{"no server", []string{s.here + "/tree", "-r", "rdma://127.0.0.1:9/x"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.copy(t, append([]string{"--json"}, c.args...)...).wantFailure(c.code, `.`)
			e := p.event("error")
			if e["exit_code"] != float64(c.code) {
				t.Errorf("exit_code is %v, want %d", e["exit_code"], c.code)
			}
			if text, _ := e["text"].(string); text == "" || !strings.Contains(p.stderr.String(), text) {
				t.Errorf("text is %q: %s", text, p)
			}
		})
	}
	s.stop()
}

// TestTransports: the chosen transport is printed, and a required one is enforced.
func TestTransports(t *testing.T) {
	onHost(t)
	if out, err := os.ReadDir("/sys/class/infiniband"); err == nil && len(out) > 0 {
		t.Skip("is about machines without RDMA devices")
	}
	s := newSides(t, tcpLink())
	write(t, s.here+"/file", "content")
	p := run(t, how{}, s.here+"/file", s.url("auto")).wantCode(0)
	if lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n"); len(lines) != 1 || !regexp.MustCompile(`^copied 1 file, 7 B in .* s \(.*B/s, tcp\), verified$`).MatchString(lines[0]) {
		t.Errorf("more than the one line of a good copy, or another: %s", p)
	}
	p = run(t, how{}, "-v", s.here+"/file", s.url("auto")).wantCode(0)
	p.wantOne(strings.Split(p.stderr.String(), "\n"), `^gdrcp: using tcp: .*no RDMA device|^gdrcp: using tcp: .*without verbs`)
	for _, args := range [][]string{{"--require", "verbs"}, {"--transport", "verbs"}} {
		p := run(t, how{}, append(args, s.here+"/file", s.url("none"))...)
		p.wantFailure(5, `(?i)RDMA|verbs`)
	}
	run(t, how{}, "--transport", "tcp", "--require", "verbs", s.here+"/file", s.url("none")).wantFailure(2, `verbs is required`)
	run(t, how{}, "devices").wantFailure(5, `(?i)RDMA|verbs|librar`)
	if e := run(t, how{}, "devices", "--json").wantCode(5).event("error"); e["exit_code"] != 5.0 || e["reason"] == "" || e["reason"] == nil {
		t.Errorf("devices --json: %v", e)
	}
	run(t, how{}, "serve", "--root", s.there, "--transport", "verbs").wantFailure(5, `(?i)RDMA|verbs`)
	s.stop()
}

var root = regexp.MustCompile(`root (\w+ [0-9a-f]+)`)

// TestRoots: both ends print the same root, and the manifests of the source and of the
// copy have it, too.
func TestRoots(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		for _, hash := range []string{"xxh3", "blake3", "crc32c", "sha256"} {
			if l.transport == "verbs" && hash != "xxh3" {
				continue // the same for any transport
			}
			t.Run(hash, func(t *testing.T) {
				s := newSides(t, l)
				makeTree(t, s.here+"/tree", 30, 1)
				makeFile(t, s.here+"/tree/pieces", 3*mib+5, 2)
				m := t.TempDir() + "/m.zst"
				p := s.copy(t, "-rlptv", "--hash", hash, "--write-manifest", m, s.here+"/tree", s.url("copy")).wantCode(0)
				sameTree(t, s.here+"/tree", s.there+"/copy", true)
				s.stop()
				ours, theirs := root.FindStringSubmatch(p.stderr.String()), root.FindStringSubmatch(s.stderr.String())
				if ours == nil || theirs == nil || ours[1] != theirs[1] {
					t.Fatalf("the roots: %v %v: %s %s", ours, theirs, p, s.process)
				}
				for _, tree := range []string{s.here + "/tree", s.there + "/copy"} {
					run(t, how{}, "manifest", "verify", "-p", m, tree).wantCode(0)
				}
				if shown := run(t, how{}, "manifest", "show", m).wantCode(0); !strings.Contains(shown.stdout.String(), ours[1][len(hash)+1:]) {
					t.Errorf("the manifest has not the root %s: %s", ours[1], shown)
				}
			})
		}
	})
}

// TestBlake3 compares the roots of files with what b3sum prints.
func TestBlake3(t *testing.T) {
	onHost(t)
	b3sum, err := exec.LookPath("b3sum")
	if err != nil {
		t.Skip("needs b3sum")
	}
	s := newSides(t, tcpLink())
	for name, bytes := range map[string]int64{"empty": 0, "byte": 1, "piece": mib, "more": mib + 1, "many": 7*mib + 12345} {
		makeFile(t, s.here+"/"+name, bytes, 3)
		m := t.TempDir() + "/m"
		s.copy(t, "--hash", "blake3", "--write-manifest", m, s.here+"/"+name, s.url("")).wantCode(0)
		sum, err := exec.Command(b3sum, "--no-names", s.there+"/"+name).Output()
		must(t, err)
		shown := run(t, how{}, "manifest", "show", m).wantCode(0)
		if !strings.Contains(shown.stdout.String(), strings.TrimSpace(string(sum))) {
			t.Errorf("%s: b3sum says %s, the manifest: %s", name, sum, shown)
		}
	}
	s.stop()
}

// TestDamagedCopy damages copies and verifies them against the manifest.
func TestDamagedCopy(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	makeTree(t, s.here+"/tree", 20, 1)
	makeFile(t, s.here+"/tree/pieces", 4*mib, 2)
	m := t.TempDir() + "/m"
	s.copy(t, "-rl", "--write-manifest", m, s.here+"/tree", s.url("copy")).wantCode(0)
	f, err := os.OpenFile(s.there+"/copy/pieces", os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("wrong"), 2*mib+100)
	must(t, err)
	must(t, f.Close())
	must(t, os.Remove(s.there+"/copy/d0/s0/f0"))
	write(t, s.there+"/copy/extra", "")
	p := run(t, how{}, "manifest", "verify", m, s.there+"/copy").wantCode(4)
	all := strings.Split(p.stdout.String()+p.stderr.String(), "\n")
	p.wantOne(all, `pieces.*2097152.*3145727`)
	p.wantOne(all, `d0/s0/f0.*(?i)missing|(?i)missing.*d0/s0/f0`)
	p.wantOne(all, `^"?extra`)
	// If it is copied back with the manifest, damaged files are not published.
	p = s.copy(t, "-rl", "--manifest", m, s.url("copy"), s.here+"/back").wantCode(4)
	for _, name := range []string{"pieces", "extra"} {
		if _, err := os.Lstat(s.here + "/back/" + name); err == nil {
			t.Errorf("%s is not what the manifest says, and was published: %s", name, p)
		}
	}
	noneWrong(t, s.here+"/tree", s.here+"/back")
	s.copy(t, "-rl", "--manifest", m, s.here+"/tree", s.url("copy2")).wantCode(0)
	s.stop()
}

// TestBadManifests gives copies invalid manifests: one line, exit code 4, nothing wrong
// published, and no more memory than usual.
func TestBadManifests(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	makeTree(t, s.here+"/tree", 20, 1)
	dir := t.TempDir()
	s.copy(t, "-rl", "--write-manifest", dir+"/good", s.here+"/tree", s.url("copy")).wantCode(0)
	text, err := os.ReadFile(dir + "/good")
	must(t, err)
	good := string(text)
	header, rest, _ := strings.Cut(good, "\n")
	manifests := map[string]string{
		"empty": "", "garbage": garbage(10_000), "only its header": header + "\n", "cut in a line": good[:len(good)/2], "cut before the last line": good[:strings.LastIndex(good[:len(good)-1], "\n")+1],
		"cut by a byte": good[:len(good)-1], "another header": "#" + good, "another version": strings.Replace(good, " 1", " 9", 1), "something after it": good + "more\n",
		"its entries twice": header + "\n" + rest + rest, "an endless line": header + "\n" + strings.Repeat("x", 32*mib), "a NUL": strings.Replace(good, "f1", "\x00", 1),
	}
	for i := range 12 {
		at := (i*len(good) + 7) / 12
		manifests["a byte changed at "+string(rune('a'+i))] = good[:at] + string(good[at]^1) + good[at+1:]
	}
	for name, content := range manifests {
		t.Run(name, func(t *testing.T) { s.badManifest(t, dir+"/bad", content) })
	}
	for name, content := range map[string]string{
		"zstd of zeros": compressed(t, "", 1<<30), "zstd of an endless line": compressed(t, header+"\n", 1<<30),
		"zstd cut": compressed(t, good, 0)[:40],
	} {
		t.Run(name, func(t *testing.T) { s.badManifest(t, dir+"/bad.zst", content) })
	}
	s.stop()
}

// compressed returns text followed by zeros, compressed by zstd.
func compressed(t *testing.T, text string, zeros int) string {
	t.Helper()
	var b strings.Builder
	w, err := zstd.NewWriter(&b)
	must(t, err)
	_, err = w.Write([]byte(text))
	must(t, err)
	block := make([]byte, mib)
	for ; zeros > 0; zeros -= len(block) {
		_, err = w.Write(block)
		must(t, err)
	}
	must(t, w.Close())
	return b.String()
}

func (s *sides) badManifest(t *testing.T, name, content string) {
	t.Helper()
	write(t, name, content)
	must(t, os.RemoveAll(s.there+"/new"))
	p := s.copy(t, "-rl", "--manifest", name, s.here+"/tree", s.url("new"))
	p.wantCode(4)
	// A changed size or digest means that a file differs, which has a line of its own.
	if text := regexp.MustCompile(`(?m)^gdrcp: ".*\n`).ReplaceAllString(p.stderr.String(), ""); strings.Count(text, "\n") > 1 {
		t.Errorf("more than one line: %s", p)
	}
	if _, err := os.Lstat(s.there + "/new"); err == nil {
		noneWrong(t, s.here+"/tree", s.there+"/new")
		noTemps(t, s.there+"/new")
	}
	if p.peakBytes > maxBytes+ringBytes {
		t.Errorf("took %d MiB of memory", p.peakBytes/mib)
	}
	for _, args := range [][]string{{"show", name}, {"verify", name, s.here + "/tree"}} {
		q := run(t, how{}, append([]string{"manifest"}, args...)...)
		if args[0] == "show" || q.cmd.ProcessState.ExitCode() != 4 {
			q.wantFailure(4, `.`)
		}
		if q.peakBytes > maxBytes {
			t.Errorf("manifest %s took %d MiB of memory", args[0], q.peakBytes/mib)
		}
	}
}
