package xfer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gdrcp/internal/audit"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// Holes of many files share chunks as far as their digests are cheap. Their bytes are not sent, so
// this has nothing to do with devices.
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

// TestHolesOfFilesThatStand: a sparse file takes no more room than its data even if it replaces an
// existing file, whatever that contains.
func TestHolesOfFilesThatStand(t *testing.T) {
	const mib, island = 1 << 20, 8 << 10
	w := tcpWay(t)
	sparse := make([]byte, 24*mib)
	for at := 0; at < len(sparse); at += mib {
		copy(sparse[at+100_000:], randomBytes(t, island))
	}
	for _, tc := range []struct {
		name   string
		stands []byte
		full   bool // the existing file has no holes
		set    func(o *xfer.Options)
	}{
		{"in place, the same", sparse, false, func(o *xfer.Options) { o.InPlace = true }},
		{"in place of data", randomBytes(t, len(sparse)), true, func(o *xfer.Options) { o.InPlace = true }},
		{"in place, empty", nil, false, func(o *xfer.Options) { o.InPlace = true }},
		{"compared", changed(sparse, 3*mib, 20*mib), false, func(o *xfer.Options) { o.Checksum = true }},
		{"compared in place", changed(sparse, 3*mib, 20*mib), false, func(o *xfer.Options) { o.Checksum, o.InPlace = true, true }},
		{"appended", sparse[:10*mib+5], false, func(o *xfer.Options) { o.AppendVerify = true }},
		{"appended in place", sparse[:10*mib+5], false, func(o *xfer.Options) { o.AppendVerify, o.InPlace = true, true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCompared(t, w, true)
			writeHoled(t, filepath.Join(c.from, "src/f"), sparse)
			there := filepath.Join(c.to, "dst/f")
			if writeHoled(t, there, tc.stands); tc.full {
				write(t, there, tc.stands)
			}
			o := w.options(t)
			tc.set(&o)
			c.finish(t, o)
			want, got := allocated(t, filepath.Join(c.from, "src/f")), allocated(t, there)
			if got > want+mib/2 {
				t.Errorf("%d bytes are allocated, at the source %d", got, want)
			}
		})
	}
}

// writeHoled writes a file whose blocks of zeros are holes.
func writeHoled(t *testing.T, path string, data []byte) {
	t.Helper()
	const block = 4096
	write(t, path, nil)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	for at := 0; at < len(data) && err == nil; at += block {
		if p := data[at:min(at+block, len(data))]; bytes.Count(p, []byte{0}) < len(p) {
			_, err = f.WriteAt(p, int64(at))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// allocated returns how many bytes a file has allocated.
func allocated(t *testing.T, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}
