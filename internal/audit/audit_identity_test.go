package audit

import (
	"bytes"
	"strings"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// A file that has just changed gets no identity, because it could change again
// within the same clock tick. A file whose last change was earlier gets one.
func TestIdentitiesOfSettledFiles(t *testing.T) {
	const age = int64(identityAge)
	for foundNs, want := range map[int64]bool{1000 + age: true, 999 + age: false, 1000: false, 0: false} {
		var text bytes.Buffer
		h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
		w, err := manifest.NewWriter(&text, h)
		if err != nil {
			t.Fatal(err)
		}
		w.WithIdentities()
		m := &maker{out: w, sum: &Summary{Header: h}}
		it := &item{foundNs: foundNs, stamp: fileset.Stamp{Ino: 77, CtimeNs: 1000}}
		it.entry = manifest.Entry{Type: manifest.File, Path: "f", Size: 1, Root: manifest.XXH3.Piece([]byte("x"), 0, h.PieceBytes, true)}
		if err := m.end(it); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), "\ni 77 0.000001000\n"); got != want {
			t.Errorf("found %d ns after 1970: identity %v\n%s", foundNs, got, text.String())
		}
	}
}
