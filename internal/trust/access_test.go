package trust

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testSecret returns a secret that depends on n, and its text.
func testSecret(n byte) (s Secret, text string) {
	var b [SecretBytes]byte
	for i := range b {
		b[i] = byte(i) + n
	}
	s = NewSecret(b)
	return s, encodeSecret(s)
}

func TestReadAccess(t *testing.T) {
	s1, t1 := testSecret(1)
	s2, t2 := testSecret(2)
	s3, t3 := testSecret(3)
	path := writePrivate(t, "# who may come\n\n"+
		"alice "+t1+" rw /data/in\n"+
		"  bob\t"+t2+" ro \"/data/with blank\\n\"   rate=1GiB require-encrypt all-attributes max-sessions=3 # trainer\n"+
		"carol "+t3+" ro /data/../srv/#1/ rate=1536\r\n"+
		"#dave "+t3+" ro /d", 0o600)
	a, err := ReadAccess(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []Permit{
		{Key: Key{"alice", s1}, Root: "/data/in"},
		{Key: Key{"bob", s2}, Root: "/data/with blank\n", ReadOnly: true, RequireEncrypt: true, AllAttributes: true, MaxSessions: 3, BytesPerSecond: 1 << 30},
		{Key: Key{"carol", s3}, Root: "/srv/#1", ReadOnly: true, BytesPerSecond: 1536},
	}
	if !slices.Equal(a.Permits(), want) {
		t.Errorf("%+v", a.Permits())
	}
	for _, p := range want {
		if got, ok := a.Find(p.ID); !ok || got != p {
			t.Errorf("%s: %v, %v", p.ID, got, ok)
		}
	}
	for _, id := range []string{"", "dave", "Alice"} {
		if p, ok := a.Find(id); ok || p != (Permit{}) {
			t.Errorf("%q: %v", id, p)
		}
	}
	if _, err := ReadAccess(writePrivate(t, "", 0o644)); !errors.Is(err, ErrPermissive) {
		t.Errorf("readable for all: %v", err)
	}
}

func TestBadAccessFiles(t *testing.T) {
	_, secret := testSecret(7)
	for _, c := range []struct{ line, text string }{
		{secret + " rw /d", "a key's name is"},
		{"x " + secret[:20] + " rw /d", "the secret is not base64 of 32 bytes"},
		{"x rw " + secret + " /d", "the secret is not base64"},
		{"x", "the secret is not base64"},
		{"x " + secret, "neither ro nor rw"},
		{"x " + secret + " " + secret + " /d", "neither ro nor rw"},
		{"x " + secret + " wr /d", "neither ro nor rw"},
		{"x " + secret + " rw", "not an absolute path"},
		{"x " + secret + " rw " + secret, "not an absolute path"},
		{"x " + secret + " rw \"d\"", "not an absolute path"},
		{"x " + secret + " rw \"/d", "the quoted root is not a string"},
		{"x " + secret + " rw \"/d\"max-sessions=1", "a blank must follow the quoted root"},
		{"x " + secret + " rw \"/d\\x00\"", "not an absolute path"},
		{"x " + secret + " rw /a b", "only max-sessions=N, rate=SIZE, require-encrypt and all-attributes"},
		{"x " + secret + " rw /a " + secret, "only max-sessions=N, rate=SIZE, require-encrypt and all-attributes"},
		{"x " + secret + " rw /a max-sessions=0", "max-sessions is not a number from 1 to 65536"},
		{"x " + secret + " rw /a max-sessions=65537", "max-sessions is not a number"},
		{"x " + secret + " rw /a max-sessions=1 max-sessions=1", "there twice"},
		{"x " + secret + " rw /a require-encrypt require-encrypt", "there twice"},
		{"x " + secret + " rw /a require-encrypt=no", "require-encrypt takes no value"},
		{"x " + secret + " rw /a require-encrypt=", "require-encrypt takes no value"},
		{"x " + secret + " rw /a all-attributes=yes", "all-attributes takes no value"},
		{"x " + secret + " rw /a Require-Encrypt", "only max-sessions=N, rate=SIZE, require-encrypt and all-attributes"},
		{"x " + secret + " rw /a rate=", "rate is not a size"},
		{"x " + secret + " rw /a rate=1023", "rate is not a size"},
		{"x " + secret + " rw /a rate=-5M", "rate is not a size"},
		{"x " + secret + " rw /a rate=9T9", "rate is not a size"},
		{"x " + secret + " rw /a rate=99999999T", "rate is not a size"},
		{"good " + secret + " rw /a", "key good is there twice: also in line 2"},
	} {
		path := writePrivate(t, "# keys\ngood "+secret+" rw /d\n"+c.line+"\n", 0o600)
		a, err := ReadAccess(path)
		if a != nil || !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), path+":3: ") || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if strings.Contains(err.Error(), secret[:16]) {
			t.Errorf("%s: the error has the secret: %v", c.line, err)
		}
	}
	if _, err := ReadAccess(writePrivate(t, strings.Repeat("#", maxAccessBytes+1), 0o600)); err == nil {
		t.Error("a file without end was read")
	}
}

func TestAppendAccess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	first := Permit{Key: newTestKey(t, "first"), Root: "/data one", MaxSessions: 2}
	if err := AppendAccess(t.Context(), path, first); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	// Existing text is kept, and a missing newline at the end is added.
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := "# by hand\n" + strings.TrimSuffix(string(data), "\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	second := Permit{Key: newTestKey(t, "second"), Root: "/d", ReadOnly: true, RequireEncrypt: true, AllAttributes: true, BytesPerSecond: 5 << 20}
	if err := AppendAccess(t.Context(), path, second); err != nil {
		t.Fatal(err)
	}
	a, err := ReadAccess(path)
	if err != nil || !slices.Equal(a.Permits(), []Permit{first, second}) {
		t.Errorf("%v, %v", a, err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(after), text+"\n") {
		t.Errorf("it became %q, %v", after, err)
	}
	for _, p := range []Permit{{Key: newTestKey(t, "first"), Root: "/x"}, {Key: newTestKey(t, "third"), Root: "x"}, {Key: Key{ID: "none"}, Root: "/x"}} {
		if err := AppendAccess(t.Context(), path, p); err == nil {
			t.Errorf("%v was added", p)
		}
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(after) {
		t.Errorf("a refused key changed the file: %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(path)); err != nil || len(list) != 1 {
		t.Errorf("beside it there is %v, %v", list, err)
	}
}

// The name of an access file may be a link, which is kept.
func TestAppendAccessThroughALink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir+"/real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/real", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := AppendAccess(t.Context(), dir+"/link", Permit{Key: newTestKey(t, "x"), Root: "/d"}); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(dir + "/link"); err != nil || to != dir+"/real" {
		t.Errorf("%q, %v", to, err)
	}
	if a, err := ReadAccess(dir + "/real"); err != nil || len(a.Permits()) != 1 {
		t.Errorf("%v, %v", a, err)
	}
}

// A dangling link is not followed: it may lead anywhere.
func TestAppendAccessThroughALinkToNothing(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(dir+"/real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	err := AppendAccess(t.Context(), dir+"/link", Permit{Key: newTestKey(t, "x"), Root: "/d"})
	if err == nil || !strings.Contains(err.Error(), "link to a file that does not exist") {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(dir + "/real"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was made: %v", err)
	}
}

// A caller does not wait for the lock longer than it wants to.
func TestAppendAccessToALockedFile(t *testing.T) {
	path := writePrivate(t, "", 0o600)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := AppendAccess(ctx, path, Permit{Key: newTestKey(t, "x"), Root: "/d"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// If a directory cannot be synced, because it cannot be read, the error does
// not look as if the key was not added.
func TestAppendAccessUnsynced(t *testing.T) {
	const nobody = 65534
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o333)); err != nil {
		t.Fatal(err)
	}
	var err error
	var wg sync.WaitGroup
	wg.Go(func() {
		if os.Geteuid() == 0 { // root can read everything
			runtime.LockOSThread() // the thread ends with this goroutine
			if err = syscall.Setfsuid(nobody); err != nil {
				return
			}
		}
		err = AppendAccess(t.Context(), dir+"/access", Permit{Key: newTestKey(t, "x"), Root: "/d"})
	})
	wg.Wait()
	if !errors.Is(err, ErrUnsynced) {
		t.Errorf("%v", err)
	}
	if a, err := InspectAccess(dir + "/access"); err != nil || len(a.Permits()) != 1 {
		t.Errorf("%v, %v", a, err)
	}
}

// If keys are added concurrently, none is lost.
func TestAppendAccessAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access")
	const many = 20
	var wg sync.WaitGroup
	for i := range many {
		k := newTestKey(t, fmt.Sprintf("key%d", i))
		wg.Go(func() {
			if err := AppendAccess(t.Context(), path, Permit{Key: k, Root: "/d"}); err != nil {
				t.Error(err)
			}
		})
	}
	for range 50 {
		if _, err := ReadAccess(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	wg.Wait()
	if a, err := ReadAccess(path); err != nil || len(a.Permits()) != many {
		t.Errorf("%v, %v", a, err)
	}
}

// An access file that parses is written back the same, and no line causes a panic.
func FuzzAccess(f *testing.F) {
	_, secret := testSecret(1)
	f.Add("# x\na " + secret + " rw /d\nb " + secret + " ro \"/d e\" max-sessions=3 rate=5M # yes\n")
	f.Add("a " + secret + " rw \"/\\xff\"")
	f.Add("a " + secret + " rw /d rate=1TiB\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parseAccess("file", []byte(text))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "access file file:") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		var again strings.Builder
		for _, p := range a.Permits() {
			if err := p.WriteLine(&again); err != nil {
				t.Fatalf("%q: %v: %v", text, p, err)
			}
		}
		b, err := parseAccess("file", []byte(again.String()))
		if err != nil || !slices.Equal(a.Permits(), b.Permits()) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
