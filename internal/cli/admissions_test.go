package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/xfer"
)

// oneRoot returns the admissions of a server of one directory with the tests' key.
func oneRoot(t *testing.T, root string) *admissions {
	t.Helper()
	a := &admissions{keyFile: os.Getenv(keyFileVariable), root: root}
	if _, err := a.read(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return a
}

// accessCase is an access file with the key files of its keys.
type accessCase struct {
	dir, file string
}

func newAccess(t *testing.T) *accessCase {
	t.Helper()
	dir := t.TempDir()
	return &accessCase{dir: dir, file: dir + "/access"}
}

func (c *accessCase) key(id string) string { return c.dir + "/" + id + ".key" }

// add adds a key for a new directory, which it returns.
func (c *accessCase) add(t *testing.T, id string, options ...string) (root string) {
	t.Helper()
	root = t.TempDir()
	makeFiles(t, root, map[string]string{"name": id})
	gdrcp(t, append([]string{"key", "new", id, "--key-file", c.key(id), "--access-file", c.file, "--root", root}, options...)...).want(t, exitOK)
	return root
}

// drop removes a key from the file.
func (c *accessCase) drop(t *testing.T, id string) {
	t.Helper()
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	rest := regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(id)+` .*\n`).ReplaceAll(data, nil)
	if len(rest) == len(data) {
		t.Fatalf("there is no key %s", id)
	}
	if err := os.WriteFile(c.file, rest, 0o600); err != nil {
		t.Fatal(err)
	}
}

// accessServer is a server in this process. The test sends its signals and plays its
// service manager.
type accessServer struct {
	addr    string
	errs    *buffer
	hangups chan os.Signal
	manager manager
}

func (s *accessServer) url(path string) string { return "rdma://" + s.addr + "/" + path }

func serveAccess(t *testing.T, env map[string]string, args ...string) *accessServer {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	s := &accessServer{hangups: make(chan os.Signal, 1), manager: newManager(t, socket)}
	p, _, errs := newProgram()
	s.errs = errs
	p.catchHangups = func() <-chan os.Signal { return s.hangups }
	p.getenv = func(name string) string {
		if name == "NOTIFY_SOCKET" {
			return socket
		}
		return env[name]
	}
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() { code <- p.run(ctx, append([]string{"gdrcp", "serve", "--listen", "127.0.0.1:0"}, args...)) }()
	t.Cleanup(func() {
		cancel()
		if c := <-code; c != 0 {
			t.Errorf("serve ended with exit code %d:\n%s", c, errs)
		}
		s.manager.hears(t, "STOPPING=1")
	})
	s.manager.hears(t, "READY=1")
	s.addr = waitFor(t, errs, servingLine)[1]
	return s
}

// reload makes the server reload its files, waits for output that matches pattern, and
// returns all output since the call.
func (s *accessServer) reload(t *testing.T, pattern string) (told string) {
	t.Helper()
	before := len(s.errs.String())
	s.hangups <- syscall.SIGHUP
	s.manager.hears(t, `RELOADING=1\nMONOTONIC_USEC=\d+`)
	s.manager.hears(t, "READY=1")
	told = s.errs.String()[before:]
	if !regexp.MustCompile(pattern).MatchString(told) {
		t.Errorf("it wrote %q, without %s", told, pattern)
	}
	return told
}

func TestServeByAccessFile(t *testing.T) {
	c := newAccess(t)
	c.add(t, "reader", "--read-only")
	root := c.add(t, "writer")
	s := serveAccess(t, map[string]string{accessFileVariable: c.file})
	if want := "gdrcp: serving 2 keys of " + c.file + " on tcp " + s.addr + "\n"; s.errs.String() != want {
		t.Errorf("it wrote %q", s.errs)
	}
	dir := t.TempDir()
	for _, id := range []string{"reader", "writer"} {
		gdrcp(t, "--key-file", c.key(id), s.url("name"), dir+"/"+id).want(t, exitOK)
	}
	if got := listFiles(t, dir); got["reader"] != "reader" || got["writer"] != "writer" {
		t.Errorf("each key should open its own directory, and %v came", got)
	}
	gdrcp(t, "--key-file", c.key("writer"), dir+"/reader", s.url("new")).want(t, exitOK)
	r := gdrcp(t, "--key-file", c.key("reader"), dir+"/reader", s.url("new")).want(t, exitError)
	if !strings.Contains(r.err, "the key reader is read-only") || listFiles(t, root)["new"] != "reader" {
		t.Errorf("it wrote %q", r.err)
	}
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: writer@127\.0\.0\.1:\d+: push "/new": `))
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: reader@127\.0\.0\.1:\d+: push "/new": .*read-only`))
}

// --read-only applies to every key.
func TestReadOnlyAccessFile(t *testing.T) {
	c := newAccess(t)
	c.add(t, "writer")
	s := serveAccess(t, nil, "--access-file", c.file, "--read-only")
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	if r := gdrcp(t, "--key-file", c.key("writer"), dir+"/a", s.url("a")).want(t, exitError); !strings.Contains(r.err, "the server is read-only") {
		t.Errorf("it wrote %q", r.err)
	}
}

// A key, or a server for all its keys, can require encryption.
func TestRequireEncrypt(t *testing.T) {
	c := newAccess(t)
	c.add(t, "sealed", "--require-encrypt")
	c.add(t, "any")
	dir := t.TempDir()
	for _, server := range []struct {
		args  []string
		whose string
		plain map[string]int // exit codes without --encrypt, by key
	}{
		{nil, "the key sealed", map[string]int{"sealed": exitError, "any": exitOK}},
		{[]string{"--require-encrypt"}, "the server", map[string]int{"sealed": exitError, "any": exitError}},
	} {
		s := serveAccess(t, nil, append(server.args, "--access-file", c.file)...)
		for id, code := range server.plain {
			line := "gdrcp: " + s.addr + ": " + server.whose + " admits only encrypted sessions: add --encrypt\n"
			for _, args := range [][]string{{s.url("name"), dir}, {"bench", "--bytes", "1M", "--rounds", "10", "rdma://" + s.addr}} {
				args = append(args, "--transport", "tcp", "--key-file", c.key(id))
				if r := gdrcp(t, args...).want(t, code); code != exitOK && r.err != line {
					t.Errorf("gdrcp %q wrote %q", args, r.err)
				}
				gdrcp(t, append(args, "--encrypt")...).want(t, exitOK)
			}
			if code != exitOK {
				waitFor(t, s.errs, regexp.MustCompile(id+`@127\.0\.0\.1:\d+: pull "/name": `+server.whose+` admits only encrypted sessions`))
			}
		}
	}
	// Keys that have the option when the file is reloaded must encrypt from then on.
	s := serveAccess(t, nil, "--access-file", c.file)
	gdrcp(t, "--key-file", c.key("any"), s.url("name"), dir).want(t, exitOK)
	waitFor(t, s.errs, regexp.MustCompile(`any@127\.0\.0\.1:\d+: pull "/name": 1 file`)) // its session is ending or has ended
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file, append(bytes.TrimSuffix(data, []byte("\n")), " require-encrypt\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	s.reload(t, `2 keys of .*; (0 sessions|1 session) ended\n`)
	gdrcp(t, "--key-file", c.key("any"), s.url("name"), dir).want(t, exitError)
}

// A refused client does not learn whether the key's name or its secret is wrong.
func TestRefusedKeys(t *testing.T) {
	c := newAccess(t)
	c.add(t, "known")
	s := serveAccess(t, nil, "--access-file", c.file)
	var texts []string
	for _, id := range []string{"known", "wrong"} {
		key, err := trust.NewKey(id)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "key")
		if err := key.WriteFile(file); err != nil {
			t.Fatal(err)
		}
		r := gdrcp(t, "--key-file", file, s.url("name"), t.TempDir()).want(t, exitError)
		texts = append(texts, strings.ReplaceAll(r.err, id, "ID"))
	}
	if texts[0] != texts[1] || strings.Count(texts[0], "gdrcp: ") != 1 || strings.Count(texts[0], "hint: ") != 1 {
		t.Errorf("%q and %q", texts[0], texts[1])
	}
	waitFor(t, s.errs, regexp.MustCompile(`connection: .*no key is named "wrong"`))
}

func TestReload(t *testing.T) {
	c := newAccess(t)
	c.add(t, "old")
	s := serveAccess(t, nil, "--access-file", c.file)
	get := func(id string, code int) result {
		t.Helper()
		return gdrcp(t, "--transport", "tcp", "--key-file", c.key(id), s.url("name"), t.TempDir()).want(t, code)
	}
	get("old", exitOK)
	c.add(t, "new")
	get("new", exitError)
	s.reload(t, `gdrcp: the keys were read anew: 2 keys of .*access; 0 sessions ended\n`)
	get("new", exitOK)
	get("old", exitOK)

	// A file that is invalid, or readable by others, changes nothing.
	if err := os.Chmod(c.file, 0o644); err != nil {
		t.Fatal(err)
	}
	s.reload(t, `gdrcp: .*with mode 0644 others than its owner may read or write it; the keys of before stay in force\n`)
	if err := os.Chmod(c.file, 0o600); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.file, append(data, "x y\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	s.reload(t, `gdrcp: access file .*access:3: the secret is not base64 of 32 bytes; the keys of before stay in force\n`)
	get("old", exitOK)
	if err := os.WriteFile(c.file, data, 0o600); err != nil {
		t.Fatal(err)
	}

	// Removing a key ends its sessions.
	held := c.add(t, "held")
	s.reload(t, `3 keys of`)
	makeFiles(t, held, map[string]string{"name": strings.Repeat("x", 32<<20)})
	key, err := trust.ReadKeyFile(c.key("held"))
	if err != nil {
		t.Fatal(err)
	}
	p, _, _ := newProgram()
	ep := endpointOf(t, &testServer{addr: s.addr})
	ep.Key = key
	o := xfer.Options{Transport: "tcp", BytesPerSecond: 1 << 20, Report: func(e xfer.Event) {
		if e.Kind == xfer.EventConnected {
			c.drop(t, "held")
			s.reload(t, `2 keys of .*access; 1 session ended\n`)
		}
	}}
	if _, err := p.client().Pull(t.Context(), ep, []string{"/name"}, t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "the key is not valid any more") {
		t.Errorf("%v", err)
	}
	get("held", exitError)
	get("old", exitOK)
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: held@127\.0\.0\.1:\d+: pull "/name": the key is not valid any more`))
}

// The error of a copy whose key is withdrawn does not suggest running it again, because
// it would be refused.
func TestKeyWithdrawnInTheMiddle(t *testing.T) {
	c := newAccess(t)
	c.add(t, "kept")
	root := c.add(t, "held")
	s := serveAccess(t, map[string]string{accessFileVariable: c.file})
	makeFiles(t, root, map[string]string{"big": strings.Repeat("x", 24<<20)})
	p, out, errs := newProgram()
	ended := make(chan int, 1)
	go func() {
		ended <- p.run(t.Context(), []string{"gdrcp", "--json", "--transport", "tcp", "--bwlimit", "4M", "--key-file", c.key("held"), s.url("big"), t.TempDir()})
	}()
	waitFor(t, out, regexp.MustCompile(`"event":"progress","bytes":[1-9]\d{6}`))
	c.drop(t, "held")
	s.reload(t, `1 session ended\n`)
	if code := <-ended; code != exitError || strings.Contains(errs.String(), "hint") || !strings.Contains(errs.String(), "the key is not valid any more") {
		t.Errorf("exit code %d, it wrote %q", code, errs)
	}
}

// If the directory of a key does not exist, the server warns and serves the other keys.
// After the directory was created, SIGHUP makes the server serve it.
func TestRootThatIsNotThere(t *testing.T) {
	c := newAccess(t)
	c.add(t, "good")
	if err := os.Remove(c.add(t, "bad") + "/name"); err != nil {
		t.Fatal(err)
	}
	access, err := trust.ReadAccess(c.file)
	if err != nil {
		t.Fatal(err)
	}
	bad, _ := access.Find("bad")
	if err := os.Remove(bad.Root); err != nil {
		t.Fatal(err)
	}
	s := serveAccess(t, nil, "--access-file", c.file)
	if want := fmt.Sprintf("gdrcp: key bad opens nothing until SIGHUP: open %q: no such file or directory\n", bad.Root); !strings.HasSuffix(s.errs.String(), want) {
		t.Errorf("it wrote %q", s.errs)
	}
	gdrcp(t, "--key-file", c.key("good"), s.url("name"), t.TempDir()).want(t, exitOK)
	r := gdrcp(t, "--key-file", c.key("bad"), s.url("name"), t.TempDir()).want(t, exitError)
	if !strings.Contains(r.err, "open the served directory: no such file or directory") || strings.Contains(r.err, bad.Root) {
		t.Errorf("the client was told %q", r.err)
	}
	told := regexp.MustCompile("open the served directory: .*" + regexp.QuoteMeta(bad.Root))
	waitFor(t, s.errs, told)
	makeFiles(t, bad.Root, map[string]string{"name": "bad"})
	// The refused session may still be ending, and be counted.
	if told := s.reload(t, `2 keys of .*access; (0 sessions|1 session) ended\n`); strings.Contains(told, "opens nothing") {
		t.Errorf("it wrote %q", told)
	}
	gdrcp(t, "--key-file", c.key("bad"), s.url("name"), t.TempDir()).want(t, exitOK)
}

func TestAccessOptions(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"open": ""})
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"serve", exitUsage, "gdrcp serve needs --access-file FILE, or --root DIR and --key-file FILE"},
		{"serve --access-file x --root /", exitUsage, "--access-file says what each key opens"},
		{"serve --access-file x --key-file y", exitUsage, "--access-file says what each key opens"},
		{"serve --access-file " + dir + "/none", exitError, "no such file or directory"},
		{"serve --access-file " + dir + "/open", exitError, "others than its owner may read or write it\nhint: chmod 600 "},
		{"serve --root / --key-file " + dir + "/none", exitError, "no such file or directory"},
		{"serve --root / --max-wait x", exitUsage, "not a number from 0 to 86400"},
		{"serve --root / --max-memory 1M", exitUsage, "not from 8MiB"},
		{"--key-file " + dir + "/open rdma://h/x y", exitError, "hint: chmod 600 "},
	} {
		r := gdrcp(t, strings.Fields(c.args)...).want(t, c.code)
		if !strings.Contains(r.err, c.text) || strings.Count(r.err, "gdrcp: ") != 1 {
			t.Errorf("%s: it wrote %q", c.args, r.err)
		}
	}
}
