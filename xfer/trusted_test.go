package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// basisOf writes a manifest of files in the directory from, with the identities of the files of
// these names in dir as changed by change.
func basisOf(t *testing.T, from, dir string, change func(path string, e *manifest.Entry, id *manifest.Identity), names ...string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "basis")
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	w, err := manifest.Create(name, h)
	if err != nil {
		t.Fatal(err)
	}
	w.WithIdentities()
	err = w.WriteEntry(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755})
	for _, path := range names {
		var st syscall.Stat_t
		data, readErr := os.ReadFile(filepath.Join(from, path))
		err = errors.Join(err, readErr, syscall.Lstat(filepath.Join(dir, path), &st))
		e := &manifest.Entry{Type: manifest.File, Path: path, Size: st.Size, Mode: 0o644, MtimeNs: st.Mtim.Nano()}
		id := manifest.Identity{Ino: st.Ino, CtimeNs: st.Ctim.Nano()}
		if change != nil {
			change(path, e, &id)
		}
		w.Identify(id)
		err = errors.Join(err, w.BeginFile(e))
		tree, whole := manifest.NewTree(h.Algorithm), e.Size <= h.PieceBytes
		for off := int64(0); off < e.Size; off += h.PieceBytes {
			piece := make([]byte, min(h.PieceBytes, e.Size-off))
			if off < int64(len(data)) {
				copy(piece, data[off:])
			}
			d := h.Algorithm.Piece(piece, uint64(off/h.PieceBytes), h.PieceBytes, whole)
			tree.Push(d)
			err = errors.Join(err, w.PieceRun(d, 1))
		}
		err = errors.Join(err, w.EndFile(tree.Root()))
	}
	if _, commitErr := w.Commit(); err != nil || commitErr != nil {
		t.Fatal(err, commitErr)
	}
	return name
}

// trustedPull is a pull to a directory whose files differ from those of the source in every piece,
// and a basis manifest that says that they do not.
type trustedPull struct {
	s        *served
	src, dst string
	names    []string
}

func newTrustedPull(t *testing.T, w way) *trustedPull {
	p := &trustedPull{s: serve(t, w), dst: t.TempDir(), names: []string{"holes", "large", "small"}}
	p.src = filepath.Join(p.s.root, "src")
	holes := make([]byte, 6<<20)
	copy(holes[2<<20:], randomBytes(t, 1<<20))
	for i, data := range [][]byte{holes, randomBytes(t, 5<<20+12345), randomBytes(t, 100)} {
		write(t, filepath.Join(p.src, p.names[i]), data)
		write(t, filepath.Join(p.dst, p.names[i]), bytes.Repeat([]byte{7}, len(data)))
	}
	if err := os.Truncate(filepath.Join(p.src, "holes"), 3<<20); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(p.src, "holes"), 6<<20); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *trustedPull) pull(t *testing.T, w way, o xfer.Options) *xfer.Summary {
	t.Helper()
	o.Checksum = true
	sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), p.s.ep, []string{"src/."}, p.dst, o)
	if err != nil || !sum.Verified {
		t.Fatalf("%+v, %v", sum, err)
	}
	return sum
}

// A file that matches the basis manifest is not read, is kept, and does not count as verified. Only
// for that reason are files kept that in fact differ.
func TestTrustedFilesAreNotRead(t *testing.T) { over(t, testTrustedFilesAreNotRead) }

func testTrustedFilesAreNotRead(t *testing.T, w way) {
	p := newTrustedPull(t, w)
	for _, dry := range []bool{true, false} {
		o := w.options(t)
		o.DryRun, o.BasisManifest = dry, basisOf(t, p.src, p.dst, nil, p.names...)
		sum := p.pull(t, w, o)
		if all := int64(6<<20 + 5<<20 + 12345 + 100); sum.Trusted != 3 || sum.TrustedBytes != all || sum.Files != 0 || sum.Unchanged != 0 || sum.Bytes != 0 || sum.SameBytes != 0 || sum.SentBytes != 0 || sum.ComparedBytes != 0 {
			t.Errorf("dry %v: %+v", dry, sum)
		}
		for _, name := range p.names {
			if got, err := os.ReadFile(filepath.Join(p.dst, name)); err != nil || bytes.Count(got, []byte{7}) != len(got) {
				t.Errorf("%s was read and replaced: %v", name, err)
			}
		}
	}
}

// A file that does not match its record exactly is read. A file whose recorded digests differ from
// the source's is read, too, and becomes the source's.
func TestFilesThatAreNotAsTheBasisSays(t *testing.T) { over(t, testFilesThatAreNotAsTheBasisSays) }

func testFilesThatAreNotAsTheBasisSays(t *testing.T, w way) {
	for name, change := range map[string]func(path string, e *manifest.Entry, id *manifest.Identity){
		"another inode": func(_ string, _ *manifest.Entry, id *manifest.Identity) { id.Ino++ },
		"another ctime": func(_ string, _ *manifest.Entry, id *manifest.Identity) { id.CtimeNs-- },
		"another time":  func(_ string, e *manifest.Entry, _ *manifest.Identity) { e.MtimeNs++ },
		"another size":  func(_ string, e *manifest.Entry, _ *manifest.Identity) { e.Size++ },
		"another path":  func(path string, e *manifest.Entry, _ *manifest.Identity) { e.Path += "-other" },
	} {
		t.Run(name, func(t *testing.T) {
			p := newTrustedPull(t, w)
			o := w.options(t)
			o.BasisManifest = basisOf(t, p.src, p.dst, change, p.names...)
			if sum := p.pull(t, w, o); sum.Trusted != 0 || sum.Files != 3 {
				t.Errorf("%+v", sum)
			}
			sameTree(t, p.src, p.dst)
		})
	}
	t.Run("some pieces are others", func(t *testing.T) {
		p := newTrustedPull(t, w)
		lie := t.TempDir() // the manifest claims that all but one piece are the source's, which is never true
		for _, name := range p.names {
			data, err := os.ReadFile(filepath.Join(p.src, name))
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/2] ^= 1
			write(t, filepath.Join(lie, name), data)
		}
		o := w.options(t)
		o.Checksum, o.BasisManifest = true, basisOf(t, lie, p.dst, nil, p.names...)
		sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), p.s.ep, []string{"src/."}, p.dst, o)
		if err != nil || sum.Trusted != 0 || sum.TrustedBytes != 0 || sum.Corrupt+sum.Failed+sum.Changed != 2 || sum.Files != 1 {
			t.Fatalf("%+v, %v", sum, err)
		}
		for _, name := range p.names[:2] { // not the small one, which is one piece
			if got, err := os.ReadFile(filepath.Join(p.dst, name)); err != nil || bytes.Count(got, []byte{7}) != len(got) {
				t.Errorf("%s has what nobody has checked: %v", name, err)
			}
		}
	})
}

// If a file differs from the source in one piece, only that piece is sent. The file is read before
// it gets its name, and does not count as trusted.
func TestPiecesBesideTrustedOnes(t *testing.T) { over(t, testPiecesBesideTrustedOnes) }

func testPiecesBesideTrustedOnes(t *testing.T, w way) {
	p := newTrustedPull(t, w)
	for _, name := range p.names {
		data, err := os.ReadFile(filepath.Join(p.src, name))
		if err != nil {
			t.Fatal(err)
		}
		if name != "small" {
			data[1<<20] ^= 1
		}
		write(t, filepath.Join(p.dst, name), data)
	}
	o := w.options(t)
	o.BasisManifest = basisOf(t, p.dst, p.dst, nil, p.names...)
	if sum := p.pull(t, w, o); sum.Trusted != 1 || sum.TrustedBytes != 100 || sum.Files != 2 || sum.Bytes != 11<<20+12345 || sum.SentBytes > 2<<20 {
		t.Errorf("%+v", sum)
	}
	sameTree(t, p.src, p.dst)
}

// An unsuitable basis manifest is refused before anything is copied.
func TestRefusedBasisManifests(t *testing.T) {
	w := tcpWay(t)
	p := newTrustedPull(t, w)
	good := basisOf(t, p.src, p.dst, nil, p.names...)
	plain := filepath.Join(t.TempDir(), "plain")
	f, err := manifest.Create(plain, manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(o *xfer.Options){
		"without identities": func(o *xfer.Options) { o.BasisManifest = plain },
		"another hash":       func(o *xfer.Options) { o.Hash = manifest.SHA256 },
		"no comparison":      func(o *xfer.Options) { o.Checksum = false },
		"in place":           func(o *xfer.Options) { o.InPlace = true },
		"read back":          func(o *xfer.Options) { o.VerifyWritten = true },
		"two manifests":      func(o *xfer.Options) { o.Manifest = good },
	} {
		o := w.options(t)
		o.Checksum, o.BasisManifest = true, good
		change(&o)
		if _, err := w.client(rdmatest.Faults{}).Pull(t.Context(), p.s.ep, []string{"src/."}, p.dst, o); !errors.Is(err, xfer.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := w.options(t)
	o.Checksum, o.BasisManifest = true, good
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{p.src}, p.s.ep, "x", o); !errors.Is(err, xfer.ErrUsage) {
		t.Error("a push:", err)
	}
}
