package xfer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/audit"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
)

// Holes of many files share chunks as far as their digests are cheap.
// No byte of them travels, so this has nothing to do with devices.
func TestSparseFiles(t *testing.T) {
	w := tcpWay(t)
	for _, a := range []manifest.Algorithm{manifest.XXH3, manifest.BLAKE3} {
		src, s := t.TempDir(), serve(t, w)
		for i := range int64(40) {
			path := filepath.Join(src, fmt.Sprint(i))
			write(t, path, nil)
			if err := os.Truncate(path, i<<20+i); err != nil {
				t.Fatal(err)
			}
		}
		o := w.options(t)
		o.Hash = a
		sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Files != 40 || sum.WireBytes != 0 || !sum.Verified {
			t.Errorf("%s: %+v", a, sum)
		}
		var text bytes.Buffer
		h := manifest.Header{Algorithm: a, PieceBytes: manifest.DefaultPieceBytes}
		out, err := manifest.NewWriter(&text, h)
		if err != nil {
			t.Fatal(err)
		}
		made, err := audit.Create(t.Context(), filepath.Join(s.root, "copy"), out, h, audit.Options{})
		if err != nil || made.Content != sum.Content {
			t.Errorf("%s: what was copied has root %x, what is there %x: %v", a, sum.Content, made.Content, err)
		}
	}
}
