package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// overShellWith returns options that replace ssh by a local shell and the remote gdrcp
// by this test binary, with the given variable in its environment.
func overShellWith(t testing.TB, variable string) []string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{"--rsh", `sh -c 'shift; exec sh -c "$*"' rsh`, "--remote-path", variable + " " + exe}
}

// farManifest runs a manifest command whose PATH is on such a host.
func farManifest(t testing.TB, command string, args ...string) result {
	t.Helper()
	return gdrcp(t, append(append([]string{"manifest", command}, overShellWith(t, beMain+"=1")...), args...)...)
}

// auditedTree makes a tree with every kind of entry that a manifest may contain.
func auditedTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{
		"t/a": "A", "t/empty": "", "t/sub/b": "B", "t/sub/skip.o": "O", "t/new\nline \xff": "N", "t/big": strings.Repeat("0123456789abcdef", 200_000), "t/none/": "",
	})
	for link, to := range map[string]string{"t/link": "sub/b", "t/dir": "sub"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(dir + "/t/sparse")
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if _, err := sparse.WriteAt([]byte("end"), 40<<20); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A manifest made on another host is byte for byte the same as one made here, and
// verifying a tree there prints the same as here.
func TestManifestAtAnotherHost(t *testing.T) {
	dir := auditedTree(t)
	for i, options := range [][]string{
		nil, {"--hash", "blake3"}, {"-L"}, {"--exclude", "*.o", "-f", "- /t/sub/b"}, {"--hash", "sha256", "-q"},
	} {
		if i > 0 && !rdmatest.Picked(t, fmt.Sprint(options)) { // the first is used again below
			continue
		}
		here, there := fmt.Sprintf("%s/here%d", dir, i), fmt.Sprintf("%s/there%d.zst", dir, i)
		local := gdrcp(t, append([]string{"manifest", "create", dir + "/t", "-o", here}, options...)...).want(t, exitOK)
		far := farManifest(t, "create", append(options, "h:"+dir+"/t", "-o", there)...).want(t, exitOK)
		if local.err != far.err || far.out != "" {
			t.Errorf("%q: it wrote %q and %q, locally %q", options, far.out, far.err, local.err)
		}
		text, err := os.ReadFile(here)
		if err != nil {
			t.Fatal(err)
		}
		if got := farManifest(t, "create", append(options, "h:"+dir+"/t")...).want(t, exitOK).out; got != string(text) {
			t.Errorf("%q: the manifest is\n%.1000s\nhere\n%.1000s", options, got, text)
		}
		gdrcp(t, "manifest", "diff", here, there).want(t, exitOK)
		if i == 0 || i == 2 {
			verify := append(options, there, "h:"+dir+"/t", "-p")
			if r := farManifest(t, "verify", verify...).want(t, exitOK); rootIn(t, r.err) != rootIn(t, local.err) || !strings.HasPrefix(r.err, "verified ") {
				t.Errorf("%q: verified\n%s", options, r.err)
			}
		}
	}
	makeFiles(t, dir, map[string]string{"t/a": "Z", "t/extra": "E", "t/big": strings.Repeat("x", 3<<20), "t/sub/skip.o": "P"})
	if err := os.Remove(dir + "/t/sub/b"); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]string{nil, {"--json"}, {"--exclude", "*.o"}, {"-p"}} {
		local := gdrcp(t, append([]string{"manifest", "verify", dir + "/here0", dir + "/t"}, options...)...).want(t, exitIntegrity)
		far := farManifest(t, "verify", append(options, dir+"/there0.zst", "h:"+dir+"/t")...).want(t, exitIntegrity)
		if far != local {
			t.Errorf("%q: at another host\n%s%s\nhere\n%s%s", options, far.out, far.err, local.out, local.err)
		}
	}
	p, out, errs := newProgram()
	p.stdin = strings.NewReader(gdrcp(t, "manifest", "create", dir+"/t/a").want(t, exitOK).out)
	args := append(append([]string{"gdrcp", "manifest", "verify"}, overShellWith(t, beMain+"=1")...), "-", "h:"+dir+"/t/a")
	if code := p.run(t.Context(), args); code != exitOK {
		t.Errorf("from standard input: exit code %d, %s%s", code, out, errs)
	}
}

// An error on another host is printed in one line with its name and has the same exit
// code as here. No manifest is left.
func TestManifestAtAnotherHostFails(t *testing.T) {
	dir := auditedTree(t)
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m").want(t, exitOK)
	makeFiles(t, dir, map[string]string{"bad": "gdrcp-manifest 1 xxh3 1048576\nd 0755 0.000000000 .\n", "odd/a": "A"})
	if err := os.Symlink("/proc/version", dir+"/odd/version"); err != nil { // larger than its size
		t.Fatal(err)
	}
	if err := unix.Mkfifo(dir+"/odd/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		command string
		args    []string
		code    int
		line    string // the beginning of the line on standard error
	}{
		{"create", []string{"h:" + dir + "/not there", "-o", dir + "/x"}, exitError, `h: stat "` + dir + `/not there": no such file or directory`},
		{"verify", []string{dir + "/m", "h:" + dir + "/not there"}, exitError, `h: stat "` + dir + `/not there": no such file or directory`},
		{"verify", []string{dir + "/bad", "h:" + dir + "/t"}, exitIntegrity, "read manifest: " + dir + "/bad: line 3: manifest is truncated"},
		{"verify", []string{dir + "/none", "h:" + dir + "/t"}, exitError, "read manifest: open " + dir + "/none: no such file or directory"},
		{"create", []string{"h:" + dir + "/t", "-o", dir + "/none/x"}, exitError, "create manifest: "},
		{"create", []string{"rdma://h/t", "-o", dir + "/x"}, exitUsage, "rdma://h/t: a server of rdma:// neither makes nor checks manifests: use ssh (h:PATH), or copy with"},
		{"verify", []string{dir + "/m", "rdma://h:99/t"}, exitUsage, "rdma://h:99/t: a server of rdma:// neither makes nor checks manifests"},
		{"create", []string{"--quiet", "--progress", dir + "/t"}, exitUsage, "--quiet and --progress exclude each other"},
	} {
		r := farManifest(t, c.command, c.args...).want(t, c.code)
		if !strings.HasPrefix(r.err, "gdrcp: "+c.line) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s %q wrote %q", c.command, c.args, r.err)
		}
	}
	if _, err := os.Lstat(dir + "/x"); err == nil {
		t.Error("there is a manifest")
	}
	r := farManifest(t, "create", "-L", "-q", "h:"+dir+"/odd", "-o", dir+"/partial").want(t, exitPartial)
	for _, want := range []string{`"version"`, `"fifo"`} {
		if !strings.Contains(r.err, want) || strings.Count(r.err, " (at h)\n") != 2 {
			t.Errorf("it wrote %q, and no line of %s", r.err, want)
		}
	}
	local := gdrcp(t, "manifest", "verify", "-L", "-q", dir+"/partial", dir+"/odd")
	if far := farManifest(t, "verify", "-L", "-q", dir+"/partial", "h:"+dir+"/odd"); far.code != local.code || far.out != local.out {
		t.Errorf("verified there with %d and %q, here with %d and %q", far.code, far.out, local.code, local.out)
	}
	r = gdrcp(t, append(append([]string{"manifest", "create"}, overShellWith(t, "exit 3;")...), "h:"+dir+"/t")...).want(t, exitError)
	if !strings.HasPrefix(r.err, "gdrcp: h: ") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("without gdrcp there: %q", r.err)
	}
}

// beFalse makes the test binary a remote process that answers an audit with the
// messages that its value selects.
const beFalse = "GDRCP_TEST_BE_FALSE"

// slowUntil followed by a file name makes it report progress until the file exists.
const slowUntil = "slow until "

// falseAuditor is that process.
func falseAuditor(how string) int {
	ctx := context.Background()
	_, talk, err := remote.Answer(ctx, stdio{os.Stdin, os.Stdout}, remote.Banner{Protocol: xfer.ProtocolVersion, Version: "false"})
	if err != nil {
		return 1
	}
	wish, err := talk.Asked()
	if err != nil || wish.Audit == nil {
		return 1
	}
	input, given := io.Pipe()
	gone := make(chan error, 1)
	go func() { gone <- talk.HearInput(ctx, given) }()
	if wish.Audit.Verify && how != "early" {
		if _, err := io.Copy(io.Discard, input); err != nil {
			return 1
		}
	}
	const good = "gdrcp-manifest 1 xxh3 1048576\nd 0755 0.000000000 .\n"
	say := func(what string) { _, _ = io.WriteString(talk.Manifest(), what) }
	all := &remote.Audited{Files: 1, Dirs: 1, Bytes: 1}
	read := func(i int) {
		_ = talk.HasRead(remote.Tally{Bytes: int64(i+1) << 20, TotalBytes: 2000 << 20, Files: int64(i), TotalKnown: true})
		time.Sleep(100 * time.Millisecond)
	}
	if file, ok := strings.CutPrefix(how, slowUntil); ok {
		for i := range 1000 { // more than a minute, enough for anything that does not hang
			if _, err := os.Lstat(file); err == nil {
				break
			}
			read(i)
		}
	}
	switch how {
	case "truncated":
		say(good)
	case "other header":
		say("gdrcp-manifest 1 crc32c 65536\n")
	case "path":
		say(good + "f 0644 0.000000000 0 99aa06d3014798d86001c324468d497f ../x\n")
	case "gives up":
		say(good)
		_ = talk.Refuse("no more\x1b[2J of\nthis", uint8(xfer.ClassError))
	case "dies":
		if !wish.Audit.Verify {
			say(good)
		}
		return 1
	case "hangs":
		say(good)
		<-gone
		return 0
	case "slow":
		for i := range 12 {
			read(i)
		}
	case "finding":
		_ = talk.Found(&remote.Finding{Kind: "good", Path: []byte("a")})
	case "differs":
		_ = talk.Found(&remote.Finding{Kind: "bad", Path: []byte("a"), Differs: 0xff})
	case "ranges":
		_ = talk.Found(&remote.Finding{Kind: "bad", Path: []byte("a"), Differs: 4, Ranges: [][2]int64{{5, 9}, {7, 12}}})
	case "manifest":
		say(good)
	case "more":
		all.Files = 7
	case "fewer":
		all.Files = 0
	case "less than nothing":
		all.Links, all.Files = -1, 2
	case "escapes":
		_ = talk.Found(&remote.Finding{Kind: "extra", Path: []byte("\x1b[2Jx"), Text: []byte("\x1b[2Jx\ngdrcp: verified")})
	}
	_ = talk.HasAudited(all)
	<-gone
	return 0
}

// A remote process is trusted only about its own files: an invalid manifest, an
// impossible verdict or a malformed message is reported, and no manifest is left.
func TestManifestOfAFalseHost(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m").want(t, exitOK)
	run := func(how, command string, args ...string) result {
		t.Helper()
		return gdrcp(t, append(append([]string{"manifest", command}, overShellWith(t, beFalse+"='"+how+"'")...), args...)...)
	}
	for how, says := range map[string]string{
		"truncated": "manifest is truncated", "other header": "its algorithm or piece size is not the requested one", "path": "invalid path", "gives up": "no more[2J ofthis",
		"dies": "the connection by the remote shell ended: ", "finding": "unknown finding \"good\"", "differs": "unknown finding \"bad\" with differences 0xff", "ranges": "invalid message",
	} {
		r := run(how, "create", "h:/t", "-o", dir+"/x").want(t, exitError)
		if !strings.HasPrefix(r.err, "gdrcp: h: ") || !strings.Contains(r.err, says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: it wrote %q, want %q", how, r.err, says)
		}
		if _, err := os.Lstat(dir + "/x"); err == nil {
			t.Errorf("%s: there is a manifest", how)
		}
	}
	for how, says := range map[string]string{
		"manifest": "invalid message", "more": "the verdict is about other entries", "fewer": "the verdict is about other entries", "less than nothing": "a negative count of an audit",
		"dies": "the connection by the remote shell ended: ",
	} {
		r := run(how, "verify", dir+"/m", "h:/t").want(t, exitError)
		if !strings.HasPrefix(r.err, "gdrcp: h: ") || !strings.Contains(r.err, says) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: it wrote %q, want %q", how, r.err, says)
		}
	}
	r := run("escapes", "verify", dir+"/m", "h:/t").want(t, exitIntegrity)
	if strings.ContainsAny(r.out+r.err, "\x1b") || strings.Count(r.out, "\n") != 1 {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
	p, _, errs := newProgram()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, cancel)
	args := append(append([]string{"gdrcp", "manifest", "create"}, overShellWith(t, beFalse+"=hangs")...), "h:/t", "-o", dir+"/x")
	if code := p.run(ctx, args); code != exitInterrupted || errs.String() != "gdrcp: interrupted\n" {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A verdict that arrives before the whole manifest was sent is invalid, because the
// remote process cannot know it yet.
func TestVerdictBeforeTheManifest(t *testing.T) {
	t.Parallel() // it waits for the rest
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	p, _, errs := newProgram()
	r, w := io.Pipe()
	defer w.Close()
	p.stdin = r
	go func() { _, _ = io.WriteString(w, "gdrcp-manifest 1 xxh3 1048576\nd 0755 0.000000000 .\n") }() // and no more
	args := append(append([]string{"gdrcp", "manifest", "verify"}, overShellWith(t, beFalse+"=early")...), "-", "h:/t")
	if code := p.run(t.Context(), args); code != exitError || !strings.Contains(errs.String(), "it ended before it had all of the input") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// A remote process that was asked to read files does not serve sessions.
func TestAuditorServesNobody(t *testing.T) {
	link := linkToShell(t)
	dir := t.TempDir()
	asked := &remote.Audit{Path: dir, Hash: "xxh3", PieceBytes: manifest.DefaultPieceBytes}
	seen := false
	heard := remote.AuditListener{Tally: func(remote.Tally) {}, Manifest: writerFunc(func(b []byte) (int, error) {
		if conn, err := link.Mux.Dial(t.Context()); err != nil {
			t.Error(err)
		} else if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a stream to it is served: %d, %v", n, err)
		}
		seen = true
		return len(b), nil
	})}
	if _, err := link.Talk.AskAudit(t.Context(), asked, nil, heard); err != nil || !seen {
		t.Errorf("%v, manifest %v", err, seen)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
