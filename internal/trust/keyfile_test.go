package trust

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func newTestKey(t testing.TB, id string) Key {
	t.Helper()
	k, err := NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// writePrivate creates a file with the given mode, regardless of the umask.
func writePrivate(t testing.TB, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeyFile(t *testing.T) {
	k := newTestKey(t, "node-1.rack_2")
	path := filepath.Join(t.TempDir(), "key")
	if err := k.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if got, err := ReadKeyFile(path); err != nil || got != k {
		t.Errorf("%v came back as %v, %v", k, got, err)
	}
	if err := k.WriteFile(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("over a file: %v", err)
	}
	if err := (Key{ID: "a b", Secret: k.Secret}).WriteFile(path + "2"); err == nil {
		t.Error("a key of a bad id was written")
	}
	if _, err := os.Stat(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func TestKeyFilesThatAreNone(t *testing.T) {
	secret := encodeSecret(newTestKey(t, "x").Secret)
	for _, text := range []string{
		"", "\n", secret, "gdrcp-key-1", "gdrcp-key-1 " + secret, "gdrcp-key-2 x " + secret, "gdrcp-key-1 x y " + secret, "gdrcp-key-1 " + secret + " x",
		"gdrcp-key-1 x " + secret + "\ngdrcp-key-1 y " + secret, "gdrcp-key-1 x " + secret[:40], "gdrcp-key-1 x " + strings.TrimRight(secret, "="),
		"gdrcp-key-1 x " + secret + "AAAA", "gdrcp-key-1 " + strings.Repeat("x", 65) + " " + secret, "gdrcp-key-1 x/y " + secret,
		"gdrcp-key-1 x " + encodeSecret(Secret{}), "gdrcp-key-1 x " + strings.Repeat("A", maxKeyFileBytes),
	} {
		k, err := ReadKeyFile(writePrivate(t, text, 0o600))
		if err == nil || k != (Key{}) {
			t.Errorf("%q: %v, %v", text, k, err)
			continue
		}
		if hint := secret[:20]; strings.Contains(err.Error(), hint) {
			t.Errorf("%q: the error has the secret: %v", text, err)
		}
	}
}

func TestFilesThatOthersMayRead(t *testing.T) {
	k := newTestKey(t, "x")
	text := fmt.Sprintf("%s x %s\n", keyMagic, encodeSecret(k.Secret))
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644, 0o610} {
		path := writePrivate(t, text, mode)
		var p *PermissiveError
		if _, err := ReadKeyFile(path); !errors.Is(err, ErrPermissive) || !errors.As(err, &p) {
			t.Fatalf("mode %o: %v", mode, err)
		}
		if want := `chmod 600 "` + path + `"`; p.Remedy() != want || !strings.Contains(p.Error(), fmt.Sprintf("mode %04o", mode)) {
			t.Errorf("mode %o: %v, and the remedy %q", mode, p, p.Remedy())
		}
	}
	for _, mode := range []os.FileMode{0o600, 0o400, 0o700} {
		if got, err := ReadKeyFile(writePrivate(t, text, mode)); err != nil || got != k {
			t.Errorf("mode %o: %v, %v", mode, got, err)
		}
	}
}

func TestFileOfSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	path := writePrivate(t, "", 0o600)
	if err := os.Chown(path, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	var p *PermissiveError
	if _, err := ReadAccess(path); !errors.As(err, &p) || !p.Foreign || p.UID != 4242 || !strings.HasPrefix(p.Remedy(), "chown 0 ") {
		t.Errorf("%v", err)
	}
}

// Root adds to a file of the user who runs the server, who remains its owner.
func TestRootAddsToSomebodysFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a file away")
	}
	path := writePrivate(t, "", 0o600)
	if err := os.Chown(path, 4242, 4243); err != nil {
		t.Fatal(err)
	}
	if err := AppendAccess(t.Context(), path, Permit{Key: newTestKey(t, "x"), Root: "/d"}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if owner := st.Sys().(*syscall.Stat_t); owner.Uid != 4242 || owner.Gid != 4243 || st.Mode() != 0o600 {
		t.Errorf("it belongs to %d:%d now, with mode %v", owner.Uid, owner.Gid, st.Mode())
	}
	if a, err := InspectAccess(path); err != nil || len(a.Permits()) != 1 {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := ReadAccess(path); !errors.Is(err, ErrPermissive) {
		t.Errorf("to let somebody in by it: %v", err)
	}
}

// A file that is not regular is refused without blocking.
func TestFifoAsKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, t.TempDir()} {
		if _, err := ReadKeyFile(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// No way of printing a value reveals a secret in it, even in unexported fields,
// for which fmt calls no methods.
func TestSecretsAreNotPrinted(t *testing.T) {
	k := newTestKey(t, "x")
	p := Permit{Key: k, Root: "/r"}
	type hidden struct {
		secret  Secret
		pointer *Secret
		key     Key
		permits []Permit
		byName  map[string]Key
		any     any
	}
	h := hidden{k.Secret, &k.Secret, k, []Permit{p}, map[string]Key{"k": k}, k}
	deeper := struct{ h, again any }{h, &h}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
		for _, v := range []any{k, &k, p, &p, k.Secret, []Permit{p}, map[string]Key{"k": k}, h, &h, []hidden{h}, deeper, &deeper} {
			text := fmt.Sprintf(verb, v)
			for _, form := range []string{encodeSecret(k.Secret), fmt.Sprintf("%x", k.Secret.Bytes()), fmt.Sprintf("%d", k.Secret.Bytes()[:8]), string(k.Secret.Bytes())} {
				if strings.Contains(strings.ToLower(text), strings.ToLower(strings.Trim(form, "[]"))) {
					t.Errorf("%s of a %T shows the secret: %s", verb, v, text)
				}
			}
		}
	}
}

// Secrets are equal if their bytes are, and callers get copies.
func TestSecretBytes(t *testing.T) {
	raw := [SecretBytes]byte{1, 31: 9}
	s, same := NewSecret(raw), NewSecret(raw)
	b := s.Bytes()
	if s != same || !bytes.Equal(b, raw[:]) || s == NewSecret([SecretBytes]byte{1}) {
		t.Errorf("%x", b)
	}
	b[0]++
	if !bytes.Equal(s.Bytes(), raw[:]) {
		t.Error("a secret was changed from outside")
	}
	if zero := NewSecret([SecretBytes]byte{}); zero != (Secret{}) || !bytes.Equal(zero.Bytes(), make([]byte, SecretBytes)) {
		t.Error("the secret of zeros is not the zero one")
	}
}

// A key that is read is written back the same.
func FuzzKeyFile(f *testing.F) {
	f.Add("gdrcp-key-1 x AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
	f.Add("gdrcp-key-2 x y")
	f.Add("gdrcp-key-1\tx\tAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := parseKey([]byte(text))
		if err != nil {
			return
		}
		again, err := parseKey([]byte(keyMagic + " " + k.ID + " " + encodeSecret(k.Secret)))
		if err != nil || again != k || CheckID(k.ID) != nil {
			t.Errorf("%q: %v, and again %v, %v", text, k, again, err)
		}
	})
}
