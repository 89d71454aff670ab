package cli

import (
	"net"
	"strings"
	"testing"
)

// The words help and version do what the options do, and not more than that: a
// file of the name can be copied.
func TestHelpAndVersionAsWords(t *testing.T) {
	for word, option := range map[string]string{"help": "--help", "version": "--version", "help serve": "serve --help", "help manifest diff": "manifest diff --help"} {
		want := gdrcp(t, strings.Fields(option)...).want(t, exitOK)
		if r := gdrcp(t, strings.Fields(word)...).want(t, exitOK); r.out == "" || r.out != want.out || r.err != "" {
			t.Errorf("gdrcp %s wrote\n%s%s, want\n%s", word, r.out, r.err, want.out)
		}
	}
	s := startServer(t)
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"help": "H", "version": "V"})
	for _, name := range []string{"help", "version"} {
		gdrcp(t, name, s.url(name)).want(t, exitOK)
	}
}

// An error says each address once, and a destination that is not there is not
// called something else than a directory.
func TestCausesAreSaidOnce(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A", "b": "B", "file": "F"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().String()
	s := startServer(t)
	gdrcp(t, dir+"/a", s.url("a")).want(t, exitOK)
	for _, c := range []struct{ args, want string }{
		{"--transport tcp " + dir + "/a rdma://127.0.0.1:1/a", "gdrcp: connect 127.0.0.1:1 via tcp: connection refused"},
		{"serve --transport tcp --root " + dir + " --listen " + taken, "gdrcp: listen on " + taken + " via tcp: address already in use"},
		{dir + "/a " + s.url("nodir/"), s.addr + `: copy to "/nodir/": no such directory`},
		{dir + "/a " + dir + "/b " + s.url("nodir"), s.addr + `: copy several sources to "/nodir": no such directory`},
		{s.url("a") + " " + dir + "/nodir/", `nodir/": no such directory`},
		{s.url("a") + " " + dir + "/file/", `file/": not a directory`},
	} {
		r := gdrcp(t, strings.Fields(c.args)...).want(t, exitError)
		if !strings.Contains(r.err, c.want+"\n") {
			t.Errorf("gdrcp %s wrote\n%swant\n%s", c.args, r.err, c.want)
		}
	}
	r := gdrcp(t, "--transport", "tcp", dir+"/a", "rdma://no-such-host.invalid/a").want(t, exitError)
	if strings.Count(r.err, "no-such-host.invalid") != 1 || strings.Contains(r.err, "lookup") {
		t.Errorf("it wrote %q", r.err)
	}
}
