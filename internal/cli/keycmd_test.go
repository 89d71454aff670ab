package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gdrcp/internal/trust"
)

func TestKeyNew(t *testing.T) {
	dir := t.TempDir()
	keyFile, accessFile := dir+"/trainer.key", dir+"/access"
	r := gdrcp(t, "key", "new", "trainer", "--key-file", keyFile, "--access-file", accessFile, "--root", dir+"/a b/..", "--read-only", "--require-encrypt", "--all-attributes", "--max-sessions", "2", "--rate", "5M").want(t, exitOK)
	want := "gdrcp: " + accessFile + " admits the key; a running server reads that file anew on SIGHUP\n" +
		"gdrcp: key trainer is in " + keyFile + ": the client needs that file, by --key-file or GDRCP_KEY_FILE\n"
	if r.out != "" || r.err != want {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
	key, err := trust.ReadKeyFile(keyFile)
	if err != nil || key.ID != "trainer" {
		t.Fatalf("%v, %v", key, err)
	}
	access, err := trust.ReadAccess(accessFile)
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := access.Find("trainer"); !ok || p != (trust.Permit{Key: key, Root: dir, ReadOnly: true, RequireEncrypt: true, AllAttributes: true, MaxSessions: 2, BytesPerSecond: 5 << 20}) {
		t.Errorf("%+v", p)
	}
	gdrcp(t, "key", "new", "inbox", "--key-file", dir+"/inbox", "--access-file", accessFile, "--root", "/srv/in box").want(t, exitOK)
	r = gdrcp(t, "key", "list", "--access-file", accessFile).want(t, exitOK)
	if want := "trainer  read  " + dir + "  max-sessions=2  rate=5MiB  require-encrypt  all-attributes\ninbox    read and write  \"/srv/in box\"\n"; r.out != want || r.err != "" {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
}

// The line for a server elsewhere is printed on standard output, and matches the key
// that was written.
func TestKeyNewPrintsTheLine(t *testing.T) {
	t.Chdir(t.TempDir())
	r := gdrcp(t, "key", "new", "-", "--root", "/data").want(t, exitOK)
	key, err := trust.ReadKeyFile("./-.key")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("access", []byte(r.out), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := trust.ReadAccess("access")
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := access.Find("-"); !ok || p != (trust.Permit{Key: key, Root: "/data"}) {
		t.Errorf("%q is %+v", r.out, p)
	}
	if r := gdrcp(t, "key", "new", "short").want(t, exitOK); r.out != "" {
		t.Errorf("it wrote %q", r.out)
	}
}

func TestKeyErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, ".", map[string]string{"open": "", "broken": "x\n", "there.key": ""})
	for name, mode := range map[string]os.FileMode{"open": 0o644, "broken": 0o600} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"key", exitUsage, "gdrcp key needs one of: new, list"},
		{"key new", exitUsage, "needs 1 operand: ID, the name of the key"},
		{"key new a b", exitUsage, "needs 1 operand"},
		{"key new a/b", exitUsage, "a/b: bad key: a key's name is 1 to 64 of"},
		{"key new x --access-file f", exitUsage, "--access-file needs --root DIR, the directory that the key opens"},
		{"key new x --read-only", exitUsage, "options about what the key may do need --root DIR"},
		{"key new x --root /d --rate 5", exitUsage, "--rate"},
		{"key new x --root /d --max-sessions 0", exitUsage, "not a number from 1 to 65536"},
		{"key new there", exitError, "file exists\nhint: a key that is written over is lost: --key-file FILE names another file\n"},
		{"key new x --access-file open --root /d", exitError, "with mode 0644 others than its owner may read or write it\nhint: chmod 600 "},
		{"key new x --access-file broken --root /d", exitError, "broken:1: the secret is not base64 of 32 bytes\n"},
		{"key new x --access-file none/f --root /d", exitError, "no such file or directory"},
		{"key list", exitUsage, "gdrcp key list needs --access-file FILE"},
		{"key list --access-file none", exitError, "no such file or directory"},
		{"key list --access-file broken", exitError, "broken:1: the secret"},
		{"key list x", exitUsage, "takes no operand"},
	} {
		r := gdrcp(t, strings.Fields(c.args)...).want(t, c.code)
		if r.out != "" || !strings.Contains(r.err, c.text) || strings.Count(r.err, "gdrcp: ") != 1 {
			t.Errorf("%s: it wrote %q and %q", c.args, r.out, r.err)
		}
	}
	// Failed commands leave no key files.
	if left, err := filepath.Glob("x*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// No error about a key file contains its secret.
func TestKeysAreNotTold(t *testing.T) {
	dir := t.TempDir()
	r := gdrcp(t, "key", "new", "x", "--key-file", dir+"/x", "--access-file", dir+"/access", "--root", "/d").want(t, exitOK)
	data, err := os.ReadFile(dir + "/x")
	if err != nil {
		t.Fatal(err)
	}
	secret := regexp.MustCompile(`\S{44}`).FindString(string(data))
	if secret == "" || strings.Contains(r.out+r.err, secret) {
		t.Errorf("%q: it wrote %q and %q", data, r.out, r.err)
	}
	for _, text := range []string{"x " + secret + " rw /d x", "x " + secret + "\n", secret + " x rw /d"} {
		if err := os.WriteFile(dir+"/access", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := gdrcp(t, "key", "list", "--access-file", dir+"/access").want(t, exitError)
		if strings.Contains(r.err, secret[:16]) {
			t.Errorf("it wrote %q", r.err)
		}
	}
}
