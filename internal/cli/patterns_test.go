package cli

import (
	"strings"
	"testing"
)

// A pattern of a server's paths is what the server has for it, below what the key
// opens; where it stands for nothing that is an error, as with scp.
func TestPatternsOfAServer(t *testing.T) {
	s := startServer(t, "--require-encrypt", "--max-sessions", "1")
	makeFiles(t, s.root, map[string]string{"d/a.pt": "one", "d/b.pt": "two", "d/c": "no", "e/f/x.pt": "three", "lit[1].pt": "four", "lit1.pt": "no"})
	here := t.TempDir()
	gdrcp(t, "--encrypt", s.url("d/*.pt"), s.url("lit[1].pt"), here+"/").want(t, exitOK)
	gdrcp(t, "--encrypt", "-r", s.url("e*"), here+"/").want(t, exitOK)
	r := gdrcp(t, "--encrypt", s.url("e/?/*.pt"), here+"/one").want(t, exitOK)
	wantFiles(t, here, map[string]string{"a.pt": "one", "b.pt": "two", "lit[1].pt": "four", "e/f/x.pt": "three", "one": "three"})
	if !strings.Contains(r.err, "copied 1 file") {
		t.Errorf("it says %s", r.err)
	}
	r = gdrcp(t, "--encrypt", s.url("d/*.txt"), here+"/").want(t, exitError)
	if !strings.HasSuffix(r.err, `gdrcp: `+s.addr+`: "/d/*.txt": no such file or directory`+"\n") {
		t.Errorf("of nothing it says %s", r.err)
	}
	gdrcp(t, "--encrypt", s.url("../*"), here+"/").want(t, exitError)
}
