package manifest

import (
	"bytes"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

var identityHeader = Header{XXH3, MinPieceBytes}

// withIdentities returns the text of a manifest of files, some of them with identities.
func withIdentities(t testing.TB) string {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, identityHeader)
	if err != nil {
		t.Fatal(err)
	}
	w.WithIdentities()
	piece := func(n int) Digest { return XXH3.Piece(make([]byte, n), 0, MinPieceBytes, n < MinPieceBytes) }
	w.Identify(Identity{1, 1}) // only files have one
	err = w.WriteEntry(&Entry{Type: Dir, Path: "."})
	w.Identify(Identity{math.MaxUint64, -1})
	err = errors.Join(err, w.WriteEntry(&Entry{Type: File, Path: "a", Size: 5, Root: piece(5)}))
	err = errors.Join(err, w.WriteEntry(&Entry{Type: File, Path: "b", Size: 5, Root: piece(5)}))
	w.Identify(Identity{7, 1500000000})
	err = errors.Join(err, w.BeginFile(&Entry{Type: File, Path: "c", Size: 2 * MinPieceBytes}), w.PieceRun(piece(MinPieceBytes), 2))
	tree := NewTree(XXH3)
	tree.PushRun(piece(MinPieceBytes), 2)
	err = errors.Join(err, w.EndFile(tree.Root()))
	w.Identify(Identity{8, 1})
	err = errors.Join(err, w.BeginFile(&Entry{Type: File, Path: "d", Size: 5}), w.VoidFile(), w.WriteEntry(&Entry{Type: File, Path: "e", Size: 5, Root: piece(5)}))
	if _, closeErr := w.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return out.String()
}

func TestIdentities(t *testing.T) {
	text := withIdentities(t)
	for _, want := range []string{"gdrcp-manifest 2 ", "\ni 18446744073709551615 -0.000000001\nf ", "\ni 7 1.500000000\nf "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	r, err := NewReader(strings.NewReader(text))
	if err != nil || !r.HasIdentities() {
		t.Fatal(err)
	}
	want := map[string]Identity{"a": {math.MaxUint64, -1}, "c": {7, 1500000000}}
	for {
		e, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := r.Identity(); id != want[e.Path] || ok != (id != Identity{}) {
			t.Errorf("%s: %v, %v", e.Path, id, ok)
		}
	}
	var plain bytes.Buffer
	w, err := NewWriter(&plain, identityHeader)
	if err != nil {
		t.Fatal(err)
	}
	w.Identify(Identity{1, 2})
	if _, err := w.Close(); err != nil || !strings.HasPrefix(plain.String(), "gdrcp-manifest 1 ") || strings.Contains(plain.String(), "\ni ") {
		t.Errorf("%v\n%s", err, plain.String())
	}
}

func TestBadIdentities(t *testing.T) {
	good := withIdentities(t)
	const line = "i 7 1.500000000\n"
	for name, bad := range map[string]string{
		"of version 1":       strings.Replace(good, "gdrcp-manifest 2", "gdrcp-manifest 1", 1),
		"of a later version": strings.Replace(good, "gdrcp-manifest 2", "gdrcp-manifest 3", 1),
		"twice":              strings.Replace(good, line, line+line, 1),
		"of a directory":     strings.Replace(good, "\nd ", "\n"+line+"d ", 1),
		"at the end":         strings.Replace(good, "\nroot ", "\n"+line+"root ", 1),
		"without a time":     strings.Replace(good, line, "i 7\n", 1),
		"another spelling":   strings.Replace(good, line, "i 07 1.500000000\n", 1),
		"a sign":             strings.Replace(good, line, "i +7 1.500000000\n", 1),
		"too large":          strings.Replace(good, line, "i 18446744073709551616 1.500000000\n", 1),
		"a bad time":         strings.Replace(good, line, "i 7 1.5\n", 1),
		"among a file's":     strings.Replace(good, " x2\n", " x2\n"+line, 1),
	} {
		if bad == good {
			t.Fatal(name)
		}
		if _, err := readToEnd(bad); !errors.Is(err, ErrFormat) && !errors.Is(err, ErrVersion) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzIdentities: the writer reproduces every text that the reader accepts.
func FuzzIdentities(f *testing.F) {
	f.Add([]byte(withIdentities(f)))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := NewReader(bytes.NewReader(text))
		if err != nil {
			return
		}
		defer r.Close()
		if !r.HasIdentities() || r.source.decoder != nil {
			return
		}
		var out bytes.Buffer
		w, err := NewWriter(&out, r.Header())
		if err != nil {
			t.Fatal(err)
		}
		w.WithIdentities()
		if err := Copy(w, r, nil); err != nil {
			return
		}
		if _, err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), text) {
			t.Fatalf("accepted (%v)\n%q\nwhich writes as\n%q", err, text, out.Bytes())
		}
	})
}
