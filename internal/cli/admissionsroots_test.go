package cli

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/xfer"
)

// open adds a key for the given directory.
func (c *accessCase) open(t *testing.T, id, root string, options ...string) {
	t.Helper()
	gdrcp(t, append([]string{"key", "new", id, "--key-file", c.key(id), "--access-file", c.file, "--root", root}, options...)...).want(t, exitOK)
}

// A client that may write to a directory cannot redirect a key for a directory inside
// it: neither while the server runs, nor when it reloads its keys, nor before it
// starts.
func TestInnerRootIsNotReplaced(t *testing.T) {
	c := newAccess(t)
	outer := c.add(t, "outer")
	inner := filepath.Join(outer, "x/inner")
	makeFiles(t, inner, map[string]string{"name": "inner"})
	c.open(t, "inner", inner)
	s := serveAccess(t, nil, "--access-file", c.file)
	warning := regexp.QuoteMeta(`gdrcp: key outer may change what key inner opens: ` + inner + ` lies below ` + outer)
	waitFor(t, s.errs, regexp.MustCompile(warning+"\n"))
	got := t.TempDir()
	gdrcp(t, "--key-file", c.key("inner"), s.url("name"), got).want(t, exitOK)

	// The outer key's client replaces it by a link to the directory of the keys.
	link := t.TempDir()
	makeFiles(t, link, map[string]string{"x/": ""})
	if err := os.Symlink(c.dir, link+"/x/inner"); err != nil {
		t.Fatal(err)
	}
	gdrcp(t, "-rl", "--delete", "--key-file", c.key("outer"), link+"/.", s.url("")).want(t, exitOK)
	if to, err := os.Readlink(inner); err != nil || to != c.dir {
		t.Fatalf("the inner directory is not a link: %q, %v", to, err)
	}
	refused := func(s *accessServer) {
		t.Helper()
		stolen := t.TempDir()
		gdrcp(t, "--key-file", c.key("inner"), s.url("access"), stolen).want(t, exitError)
		gdrcp(t, "-r", "--key-file", c.key("inner"), s.url(""), stolen)
		gdrcp(t, "--key-file", c.key("inner"), got+"/name", s.url("planted"))
		if files := listFiles(t, stolen); len(files) != 0 {
			t.Errorf("the inner key read %v", files)
		}
		if _, err := os.Lstat(c.dir + "/planted"); err == nil {
			t.Error("the inner key wrote beside the access file")
		}
	}
	refused(s)
	problem := regexp.QuoteMeta(`gdrcp: key inner opens nothing until SIGHUP: open "` + inner + `": its path goes through a link below a directory that a read-write key opens or has opened`)
	s.reload(t, problem)
	refused(s)
	fresh := serveAccess(t, nil, "--access-file", c.file)
	waitFor(t, fresh.errs, regexp.MustCompile(problem))
	refused(fresh)

	// It is a directory again.
	makeFiles(t, link, map[string]string{"y/inner/name": "anew"})
	gdrcp(t, "-r", "--delete", "--key-file", c.key("outer"), link+"/y/.", s.url("x/")).want(t, exitOK)
	if told := s.reload(t, warning+"\n"); strings.Contains(told, "opens nothing") {
		t.Errorf("it wrote %q", told)
	}
	gdrcp(t, "--key-file", c.key("inner"), s.url("name"), got).want(t, exitOK)
	if files := listFiles(t, got); files["name"] != "anew" {
		t.Errorf("the inner key reads %v", files)
	}
}

// A server with one key keeps its directory open, too.
func TestOneRootIsHeld(t *testing.T) {
	s := startServer(t)
	makeFiles(t, s.root, map[string]string{"a": "A"})
	outside := t.TempDir()
	makeFiles(t, outside, map[string]string{"a": "secret"})
	if err := os.Rename(s.root, s.root+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, s.root); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gdrcp(t, s.url("a"), dir).want(t, exitOK)
	if got := listFiles(t, dir); got["a"] != "A" {
		t.Errorf("it serves %v", got)
	}
}

// A session continues when the keys are reloaded, but ends if the path of its key now
// leads to another directory.
func TestReloadWithAnotherDirectory(t *testing.T) {
	c := newAccess(t)
	roots := map[string]string{"same": c.add(t, "same"), "other": c.add(t, "other")}
	s := serveAccess(t, nil, "--access-file", c.file)
	ends, goOn := make(map[string]<-chan error), make(chan struct{})
	for id, root := range roots {
		makeFiles(t, root, map[string]string{"large": strings.Repeat("x", 4<<20)})
		ends[id] = pullWhenTold(t, c, s, id, goOn)
	}
	if err := os.Rename(roots["other"], roots["other"]+".old"); err != nil {
		t.Fatal(err)
	}
	makeFiles(t, roots["other"], map[string]string{"name": "another"})
	for id, want := range map[string]string{"same": "same", "other": "other"} {
		if got := fetchName(t, c, s, id); got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
	s.reload(t, `2 keys of .*access; [1-3] sessions? ended\n`)
	for id, want := range map[string]string{"same": "same", "other": "another"} {
		if got := fetchName(t, c, s, id); got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
	close(goOn)
	if err := <-ends["other"]; err == nil || !strings.Contains(err.Error(), "the key is not valid any more, or opens something else now") {
		t.Errorf("the session of the other directory: %v", err)
	}
	if err := <-ends["same"]; err != nil {
		t.Errorf("the session of the same directory: %v", err)
	}
}

// pullWhenTold starts a session that copies the file "large", and returns when the
// server has the session. The copy finishes only after goOn is closed, so that it is in
// progress until then even on a busy machine.
func pullWhenTold(t *testing.T, c *accessCase, s *accessServer, id string, goOn <-chan struct{}) <-chan error {
	t.Helper()
	key, err := trust.ReadKeyFile(c.key(id))
	if err != nil {
		t.Fatal(err)
	}
	ep := endpointOf(t, &testServer{addr: s.addr})
	ep.Key = key
	begun, end, to := make(chan struct{}), make(chan error, 1), t.TempDir()
	o := xfer.Options{Transport: "tcp", Report: func(e xfer.Event) {
		if e.Kind != xfer.EventConnected {
			return
		}
		close(begun)
		select {
		case <-goOn:
		case <-t.Context().Done(): // the test has already failed
		}
	}}
	go func() {
		p, _, _ := newProgram()
		_, err := p.client().Pull(t.Context(), ep, []string{"/large"}, to, o)
		end <- err
	}()
	select {
	case <-begun:
	case err := <-end:
		t.Fatal(err)
	}
	return end
}

func fetchName(t *testing.T, c *accessCase, s *accessServer, id string) string {
	t.Helper()
	dir := t.TempDir()
	gdrcp(t, "--key-file", c.key(id), s.url("name"), dir).want(t, exitOK)
	return listFiles(t, dir)["name"]
}

// serveBriefly runs a server that should not start, with a key file in its environment.
// If it starts, serveBriefly ends it.
func serveBriefly(t *testing.T, keyFile string, args ...string) result {
	t.Helper()
	p, out, errs := newProgram()
	p.getenv = func(name string) string { return map[string]string{keyFileVariable: keyFile}[name] }
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	code := p.run(ctx, append([]string{"gdrcp", "serve", "--listen", "127.0.0.1:0"}, args...))
	return result{code, out.String(), errs.String()}
}

// Files with secrets are not served: a server does not start if clients could reach
// one, and a running server then keeps its former configuration.
func TestSecretsAreNotServed(t *testing.T) {
	c := newAccess(t)
	c.add(t, "good")
	inside := filepath.Join(c.dir, "served/keys")
	makeFiles(t, inside, map[string]string{"name": ""})
	if err := os.Symlink(inside, c.dir+"/elsewhere"); err != nil {
		t.Fatal(err)
	}
	access, key := filepath.Join(inside, "access"), filepath.Join(inside, "one.key")
	gdrcp(t, "key", "new", "one", "--key-file", key, "--access-file", access, "--root", c.dir+"/served", "--read-only").want(t, exitOK)
	for _, args := range [][]string{
		{"--access-file", access},
		{"--access-file", c.dir + "/elsewhere/access"},
		{"--root", c.dir + "/served", "--key-file", key},
		{"--root", inside, "--key-file", c.dir + "/elsewhere/one.key"},
		{"--root", "/", "--key-file", c.key("good"), "--read-only"},
	} {
		r := serveBriefly(t, os.Getenv(keyFileVariable), args...).want(t, exitError)
		if !regexp.MustCompile(`^gdrcp: ".*" holds secrets, and it or what leads to it lies below ".*", which key \w+ opens\nhint: keep it, .*\n$`).MatchString(r.err) {
			t.Errorf("%v: it wrote %q", args, r.err)
		}
	}
	// This key file belongs to a client on this host.
	if r := serveBriefly(t, key, "--root", inside, "--key-file", c.key("good")).want(t, exitError); !strings.Contains(r.err, key) {
		t.Errorf("it wrote %q", r.err)
	}

	s := serveAccess(t, map[string]string{keyFileVariable: c.dir + "/none"}, "--access-file", c.file)
	before, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	c.open(t, "bad", c.dir)
	s.reload(t, `gdrcp: ".*access" holds secrets, and .*, which key bad opens; the keys of before stay in force\n`)
	gdrcp(t, "--key-file", c.key("bad"), s.url("access"), t.TempDir()).want(t, exitError)
	gdrcp(t, "--key-file", c.key("good"), s.url("name"), t.TempDir()).want(t, exitOK)

	// Nobody knows where the file's other name is, so the server warns.
	if err := os.WriteFile(c.file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(c.file, c.dir+"/link"); err != nil {
		t.Fatal(err)
	}
	s.reload(t, `gdrcp: .*access holds secrets and has 2 names \(hard links\): a client that reaches another of them reads it\n`)
}
