package xfer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// compared is a tree at the source, "src", and one at the destination, "dst".
type compared struct {
	*resumed
	t *testing.T
}

func newCompared(t *testing.T, w way, push bool) *compared {
	c := &compared{newResumed(t, w, push), t}
	c.source = "src/."
	return c
}

// both writes a file at both ends.
func (c *compared) both(name string, here, there []byte) {
	write(c.t, filepath.Join(c.from, "src", name), here)
	write(c.t, filepath.Join(c.to, "dst", name), there)
}

// run copies with Checksum, and checks the trees and the numbers of the summary.
func (c *compared) run(o xfer.Options) *xfer.Summary {
	c.t.Helper()
	o.Checksum = true
	sum := c.finish(c.t, o)
	end := c.s.lastEnd(c.t, c.sessions)
	if theirs := end.Summary; theirs != nil && (theirs.SentBytes != sum.SentBytes || theirs.SameBytes != sum.SameBytes || theirs.ComparedBytes != sum.ComparedBytes || theirs.Unchanged != sum.Unchanged || theirs.Files != sum.Files) {
		c.t.Errorf("the client counts %+v, the server %+v", sum, theirs)
	}
	if sum.Repairs != 0 {
		c.t.Errorf("%d pieces count as damaged", sum.Repairs)
	}
	return sum
}

// inode returns the inode number of the file at a path at the destination.
func (c *compared) inode(name string) uint64 {
	c.t.Helper()
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(c.to, "dst", name), &st); err != nil {
		c.t.Fatal(err)
	}
	return st.Ino
}

// changed returns data with one byte changed at each of some offsets.
func changed(data []byte, at ...int) []byte {
	data = bytes.Clone(data)
	for _, i := range at {
		data[i] ^= 1
	}
	return data
}

// TestChecksumSendsOnlyWhatDiffers: whatever the two ends agreed on, only data that differs is
// sent, and files that are the same are not replaced.
func TestChecksumSendsOnlyWhatDiffers(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	over(t, testChecksumSendsOnlyWhatDiffers)
}

func testChecksumSendsOnlyWhatDiffers(t *testing.T, w way) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name   string
		push   bool
		change func(o *xfer.Options)
	}{
		{"push", true, func(*xfer.Options) {}},
		{"pull", false, func(*xfer.Options) {}},
		{"few slots, more queue pairs", true, func(o *xfer.Options) { o.Slots, o.QPs = 2, 3 }},
		{"large chunks", false, func(o *xfer.Options) { o.ChunkBytes, o.Slots = 4*mib, 4 }},
		{"blake3, encrypted, compressed", true, func(o *xfer.Options) { o.Hash, o.Encrypt, o.Compress = manifest.BLAKE3, true, xfer.CompressS2 }},
		{"with a manifest", false, func(o *xfer.Options) { o.WriteManifest = filepath.Join(t.TempDir(), "m") }},
		{"not resumed, read back", true, func(o *xfer.Options) { o.NoResume, o.VerifyWritten = true, true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if w.leavesOut(tc.name, "push", "pull") {
				t.Skip("left out over an emulated device; GDRCP_TEST_FULL=1 runs it")
			}
			c := newCompared(t, w, tc.push)
			large, some := randomBytes(t, 40*mib+7), randomBytes(t, 5*mib)
			c.both("large/same", large, large)
			c.both("large/some", large, changed(large, 0, 17*mib, 39*mib-1, 40*mib+6))
			c.both("large/all", some, randomBytes(t, len(some)))
			c.both("large/longer", append(bytes.Clone(some), 1), some)
			write(t, filepath.Join(c.from, "src/large/new"), some)
			for i, data := range [][]byte{nil, {1}, some[:1000], some[:mib]} {
				name := string(rune('a' + i))
				c.both("small/same/"+name, data, data)
				if len(data) > 0 {
					c.both("small/other/"+name, data, changed(data, len(data)-1))
				}
			}
			was := map[string]uint64{}
			for _, name := range []string{"large/same", "small/same/a", "small/same/b", "small/same/c", "small/same/d"} {
				was[name] = c.inode(name)
			}
			o := w.options(t)
			tc.change(&o)
			sum := c.run(o)
			for name, ino := range was {
				if now := c.inode(name); now != ino {
					t.Errorf("%s was replaced, and is the same", name)
				}
			}
			const smallSame, smallOther = 1 + 1000 + mib, 1 + 1000 + mib
			sent := int64(3*mib + 7 + 5*mib + 5*mib + 1 + 5*mib + smallOther)
			same := int64(40*mib+7+smallSame) + 37*mib
			if sum.Unchanged != 5 || sum.Files != 7 || sum.SentBytes != sent || sum.SameBytes != same || sum.ComparedBytes != same+3*mib+7+5*mib+smallOther {
				t.Errorf("%d unchanged, %d copied, %d bytes sent of %d, %d the same of %d, %d compared", sum.Unchanged, sum.Files, sum.SentBytes, sent, sum.SameBytes, same, sum.ComparedBytes)
			}
			if sum.SentBytes+sum.SameBytes != sum.Bytes {
				t.Errorf("%d bytes sent and %d the same are not %d", sum.SentBytes, sum.SameBytes, sum.Bytes)
			}
			if sum = c.run(o); sum.Unchanged != 12 || sum.SentBytes != 0 || sum.WireBytes != 0 || sum.Files != 0 {
				t.Errorf("the second time: %d unchanged, %d files and %d bytes sent, %d on the wire", sum.Unchanged, sum.Files, sum.SentBytes, sum.WireBytes)
			}
		})
	}
}

// TestChecksumOfHoles: a hole is the same as zeros, and replaces other data with a hole.
func TestChecksumOfHoles(t *testing.T) {
	w := tcpWay(t)
	const mib = 1 << 20
	sparse := func(path string, data map[int64][]byte) {
		t.Helper()
		write(t, path, nil)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = f.Truncate(200 * mib)
		}
		for at, b := range data {
			if err == nil {
				_, err = f.WriteAt(b, at)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	there := randomBytes(t, 3*mib)
	block := bytes.Clone(there)
	clear(block[8<<10 : 64<<10]) // zeros that are not a hole at the destination
	for name, there := range map[string]map[int64][]byte{
		"the same":       {50 * mib: block},
		"zeros":          {50 * mib: block, 100 * mib: make([]byte, 2*mib)},
		"data in a hole": {50 * mib: block, 100*mib + 5: block},
		"other data":     {50 * mib: there},
		"all hole":       {},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCompared(t, w, name != "zeros")
			sparse(filepath.Join(c.from, "src/f"), map[int64][]byte{50 * mib: block})
			sparse(filepath.Join(c.to, "dst/f"), there)
			same := name == "the same" || name == "zeros"
			if sum := c.run(w.options(t)); sum.Unchanged == 1 != same || sum.Bytes != 200*mib || sum.SentBytes > 4*mib {
				t.Errorf("%d unchanged, %d bytes, %d sent", sum.Unchanged, sum.Bytes, sum.SentBytes)
			}
		})
	}
}

// TestChecksumMendsMetadata: a file with the same content is kept, and gets the time and mode of
// the source. Without that, --checksum would compare it for ever.
func TestChecksumMendsMetadata(t *testing.T) {
	w := tcpWay(t)
	c := newCompared(t, w, true)
	data := randomBytes(t, 3<<20)
	c.both("f", data, data)
	c.both("g", data, changed(data, 1))
	old := time.Unix(1e9, 5000)
	if err := os.Chtimes(filepath.Join(c.from, "src/f"), old, old); err != nil {
		t.Fatal(err)
	}
	// The quick check would keep g.
	st, err := os.Stat(filepath.Join(c.from, "src/g"))
	if err == nil {
		err = os.Chtimes(filepath.Join(c.to, "dst/g"), st.ModTime(), st.ModTime())
	}
	if err == nil {
		err = os.Chmod(filepath.Join(c.from, "src/f"), 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
	was := c.inode("f")
	o := w.options(t)
	o.Times, o.Perms = true, true
	if sum := c.run(o); sum.Unchanged != 1 || sum.Files != 1 || sum.Kept != 0 {
		t.Errorf("%+v", sum)
	}
	if st, err := os.Stat(filepath.Join(c.to, "dst/f")); err != nil || !st.ModTime().Equal(old) || st.Mode().Perm() != 0o640 || c.inode("f") != was {
		t.Errorf("%v, %v, the same file: %v", st, err, c.inode("f") == was)
	}
}

// TestChecksumDryRun: a dry run compares, and changes nothing.
func TestChecksumDryRun(t *testing.T) {
	w := tcpWay(t)
	for _, push := range []bool{true, false} {
		c := newCompared(t, w, push)
		data := randomBytes(t, 20<<20)
		c.both("same", data, data)
		c.both("empty", nil, nil)
		c.both("other", data, changed(data, 9<<20))
		c.both("small", data[:10], data[10:20])
		was := c.inode("other")
		o := w.options(t)
		o.Checksum, o.DryRun = true, true
		sum, err := c.copy(t, t.Context(), o)
		if err != nil || sum.Unchanged != 2 || sum.Files != 2 || sum.Kept != 0 || sum.Bytes != 20<<20+10 || sum.WireBytes != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		if c.inode("other") != was {
			t.Error("a dry run replaced a file")
		}
		noTemps(t, c.to)
	}
}

// TestChecksumOfWhatIsNoBasis: files that cannot be compared are copied as usual.
func TestChecksumOfWhatIsNoBasis(t *testing.T) {
	w := tcpWay(t)
	c := newCompared(t, w, true)
	data := randomBytes(t, 2<<20)
	write(t, filepath.Join(c.from, "src/link"), data)
	write(t, filepath.Join(c.to, "elsewhere"), data)
	if err := os.MkdirAll(filepath.Join(c.to, "dst"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", filepath.Join(c.to, "dst/link")); err != nil {
		t.Fatal(err)
	}
	if sum := c.run(w.options(t)); sum.Files != 1 || sum.Unchanged != 0 || sum.SentBytes != 2<<20 {
		t.Errorf("%+v", sum)
	}
}

// TestChecksumWithDamage: pieces that differ and are damaged in transit are sent until they are
// right.
func TestChecksumWithDamage(t *testing.T) {
	w := tcpWay(t)
	c := newCompared(t, w, true)
	data := randomBytes(t, 30<<20)
	c.both("f", data, randomBytes(t, len(data)))
	o := w.options(t)
	o.Checksum = true
	sum, err := w.client(rdmatest.Faults{Corrupt: some(isPayload)}).Push(t.Context(), []string{c.from + "/src/."}, c.s.ep, "dst", o)
	if err != nil || sum.Repairs == 0 || sum.SentBytes != 30<<20 {
		t.Errorf("%+v, %v", sum, err)
	}
	sameTree(t, c.from+"/src", c.to+"/dst")
	noTemps(t, c.to)
}
