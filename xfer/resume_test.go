package xfer_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// resumed is a file that is copied once until it is cut off, and then again.
type resumed struct {
	w        way
	s        *served
	push     bool
	from, to string // directories
	source   string // below from
	sessions int
	// posting, if set, is asked about what either end posts, as Stall of [rdmatest.Faults].
	posting atomic.Pointer[func(rdmatest.Posted) bool]
}

func newResumed(t *testing.T, w way, push bool) *resumed {
	r := &resumed{push: push, source: "src"}
	w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
		ask := r.posting.Load()
		return ask != nil && (*ask)(p)
	}})
	r.w, r.s = w, serve(t, w)
	r.from, r.to = t.TempDir(), r.s.root
	if !push {
		r.from, r.to = r.to, r.from
	}
	return r
}

// run copies the source to "dst".
func (r *resumed) run(t *testing.T, ctx context.Context, o xfer.Options) (*xfer.Summary, error) {
	t.Helper()
	c := r.w.client(rdmatest.Faults{})
	if r.push {
		return c.Push(ctx, []string{r.from + "/" + r.source}, r.s.ep, "dst", o)
	}
	return c.Pull(ctx, r.s.ep, []string{r.source}, filepath.Join(r.to, "dst"), o)
}

// settled waits until the server has finished the last copy.
func (r *resumed) settled(t *testing.T) {
	t.Helper()
	r.sessions++
	r.s.lastEnd(t, r.sessions)
}

// copy copies the source to "dst", and waits until the server has finished it.
func (r *resumed) copy(t *testing.T, ctx context.Context, o xfer.Options) (*xfer.Summary, error) {
	t.Helper()
	sum, err := r.run(t, ctx, o)
	r.settled(t)
	return sum, err
}

// cutOff begins a copy and interrupts it when so many bytes have arrived. It returns a lower bound
// of the bytes that had arrived by then.
func (r *resumed) cutOff(t *testing.T, o xfer.Options, bytes int64) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// Few chunks are in flight: at least one comes to the source's device when those bytes have
	// arrived.
	o.Tally, o.BytesPerSecond, o.Slots = &xfer.Tally{}, 16<<20, 4
	ended := make(chan struct{})
	interrupt := func(p rdmatest.Posted) bool {
		if isPayload(p) && o.Tally.Read().Bytes >= bytes {
			cancel()
			if !r.push { // a server continues until it learns of it
				<-ended
			}
		}
		return false
	}
	r.posting.Store(&interrupt)
	_, err := r.run(t, ctx, o)
	close(ended)
	r.posting.Store(nil)
	r.settled(t)
	if err == nil {
		t.Fatal("the copy was not cut off")
	}
	return o.Tally.Read().Bytes
}

// finish copies again, to the end, and checks the result.
func (r *resumed) finish(t *testing.T, o xfer.Options) *xfer.Summary {
	t.Helper()
	sum, err := r.copy(t, t.Context(), o)
	if err != nil || !sum.Verified {
		t.Fatalf("the second copy: %+v, %v", sum, err)
	}
	sameTree(t, filepath.Join(r.from, "src"), filepath.Join(r.to, "dst"))
	noTemps(t, r.to)
	if left := sum.Bytes - sum.ResumedBytes; r.source == "src" && o.Compress == xfer.CompressOff && sum.WireBytes > left {
		t.Errorf("%d bytes were sent, and only %d had not arrived", sum.WireBytes, left)
	}
	return sum
}

// TestCopiesThatAreCutOffGoOn: no more than a ring is sent twice, whatever the second copy does
// differently.
func TestCopiesThatAreCutOffGoOn(t *testing.T) {
	rdmatest.BesideOthers(t) // the copies are held back
	over(t, testCopiesThatAreCutOffGoOn)
}

func testCopiesThatAreCutOffGoOn(t *testing.T, w way) {
	const fileBytes, cutAt = 80<<20 + 5, 30 << 20
	for _, c := range []struct {
		name          string
		push          bool
		first, second func(o *xfer.Options)
	}{
		{"push", true, func(*xfer.Options) {}, func(*xfer.Options) {}},
		{"pull", false, func(*xfer.Options) {}, func(*xfer.Options) {}},
		{"other chunks, slots and queue pairs", true, func(*xfer.Options) {}, func(o *xfer.Options) { o.ChunkBytes, o.Slots, o.QPs = 4<<20, 4, 2 }},
		{"rechecked", false, func(*xfer.Options) {}, func(o *xfer.Options) { o.Recheck = true }},
		{"blake3, encrypted", true, func(o *xfer.Options) { o.Hash, o.Encrypt = manifest.BLAKE3, true }, func(o *xfer.Options) { o.Hash = manifest.BLAKE3 }},
		{"compressed", false, func(o *xfer.Options) { o.Compress = xfer.CompressS2 }, func(o *xfer.Options) { o.Compress = xfer.CompressS2 }},
		{"unsynced", true, func(o *xfer.Options) { o.NoFsync = true }, func(o *xfer.Options) { o.NoFsync = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdmatest.BesideOthers(t)
			if w.leavesOut(c.name, "push", "pull") {
				t.Skip("left out over an emulated device; GDRCP_TEST_FULL=1 runs it")
			}
			r := newResumed(t, w, c.push)
			write(t, filepath.Join(r.from, "src"), randomBytes(t, fileBytes))
			first, second := w.options(t), w.options(t)
			c.first(&first)
			c.second(&second)
			arrived := r.cutOff(t, first, cutAt)
			sum := r.finish(t, second)
			if ring := int64(xfer.DefaultSlots * xfer.DefaultChunkBytes); sum.ResumedBytes < arrived-ring || sum.ResumedBytes >= fileBytes {
				t.Errorf("%d bytes had arrived, and %d of %d counted", arrived, sum.ResumedBytes, fileBytes)
			}
		})
	}
}

// TestTreesThatAreCutOffGoOn: with -t, files that had arrived are kept, and one that was half
// copied is resumed, or several that were in progress together. A file that begins with a hole is
// also resumed.
func TestTreesThatAreCutOffGoOn(t *testing.T) {
	rdmatest.BesideOthers(t)
	for name, c := range map[string]struct {
		transfers int
		cutAt     []int64
	}{
		"one after the other": {1, []int64{30 << 20, 20 << 20, 90 << 20}},
		"side by side":        {4, []int64{30 << 20, 20 << 20, 20 << 20}},
	} {
		t.Run(name, func(t *testing.T) {
			rdmatest.BesideOthers(t)
			testTreesThatAreCutOffGoOn(t, c.transfers, c.cutAt)
		})
	}
}

func testTreesThatAreCutOffGoOn(t *testing.T, transfers int, cutAt []int64) {
	w := tcpWay(t)
	r := newResumed(t, w, true)
	r.source = "src/."
	makeTree(t, filepath.Join(r.from, "src"))
	for _, name := range []string{"1", "2", "3"} {
		write(t, filepath.Join(r.from, "src/zz", name), randomBytes(t, 20<<20))
	}
	sparse, err := os.Create(filepath.Join(r.from, "src/zz/sparse"))
	if err == nil {
		_, err = sparse.WriteAt(randomBytes(t, 24<<20), 64<<20)
		_ = sparse.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	o := w.options(t)
	o.Times, o.Transfers = true, transfers
	for _, at := range cutAt {
		r.cutOff(t, o, at)
	}
	if sum := r.finish(t, o); sum.ResumedBytes == 0 || sum.Kept == 0 {
		t.Errorf("%d bytes had arrived of files that were cut off, %d files were kept", sum.ResumedBytes, sum.Kept)
	}
}

// TestSourcesThatChangedAreSentAgain: nothing counts of a file that has been replaced, even if its
// size and time are the same.
func TestSourcesThatChangedAreSentAgain(t *testing.T) {
	w := tcpWay(t)
	r := newResumed(t, w, true)
	path := filepath.Join(r.from, "src")
	write(t, path, randomBytes(t, 40<<20))
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	r.cutOff(t, w.options(t), 25<<20)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("other"), 3)
		_ = f.Close()
	}
	if err == nil {
		err = os.Chtimes(path, st.ModTime(), st.ModTime())
	}
	if err != nil {
		t.Fatal(err)
	}
	if sum := r.finish(t, w.options(t)); sum.ResumedBytes != 0 {
		t.Errorf("%d bytes of the former file counted", sum.ResumedBytes)
	}
}

// TestOtherImageIsSentAgain: nothing counts of a file of an image that was exchanged for one in
// which the file has the same size, times and inode.
func TestOtherImageIsSentAgain(t *testing.T) {
	w := tcpWay(t)
	r := newResumed(t, w, true)
	below := t.TempDir()
	path := filepath.Join(below, "src")
	r.from = fusetest.MountImage(t, below)
	made := time.Unix(1e9, 1) // including nanoseconds
	image := func() {
		write(t, path, randomBytes(t, 20<<20))
		if err := os.Chtimes(path, made, made); err != nil {
			t.Fatal(err)
		}
	}
	image()
	r.cutOff(t, w.options(t), 10<<20)
	image()
	if sum := r.finish(t, w.options(t)); sum.ResumedBytes != 0 {
		t.Errorf("%d bytes of the former image counted", sum.ResumedBytes)
	}
}

// TestWithoutResume: with NoResume, and of a small file, nothing is kept.
func TestWithoutResume(t *testing.T) {
	rdmatest.BesideOthers(t)
	w := tcpWay(t)
	for name, c := range map[string]struct {
		bytes  int
		change func(o *xfer.Options)
	}{
		"not wanted":   {40 << 20, func(o *xfer.Options) { o.NoResume = true }},
		"small":        {xfer.ResumeBytes - 1, func(*xfer.Options) {}},
		"a manifest":   {40 << 20, func(o *xfer.Options) { o.WriteManifest = filepath.Join(t.TempDir(), "m") }},
		"wanted again": {40 << 20, func(*xfer.Options) {}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResumed(t, w, true)
			write(t, filepath.Join(r.from, "src"), randomBytes(t, c.bytes))
			o := w.options(t)
			c.change(&o)
			r.cutOff(t, o, int64(c.bytes)/2)
			if name != "wanted again" {
				noTemps(t, r.to)
			}
			o = w.options(t)
			o.NoResume = true
			if sum := r.finish(t, o); sum.ResumedBytes != 0 {
				t.Errorf("%d bytes counted", sum.ResumedBytes)
			}
		})
	}
}

// TestDamagedPartialFilesAreMended: a copy whose partial file was damaged after its last mark, or
// anywhere with Recheck, has the right bytes.
func TestDamagedPartialFilesAreMended(t *testing.T) {
	w := tcpWay(t)
	r := newResumed(t, w, true)
	data := randomBytes(t, 40<<20)
	write(t, filepath.Join(r.from, "src"), data)
	r.cutOff(t, w.options(t), 25<<20)
	entries, err := os.ReadDir(r.to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if path := filepath.Join(r.to, e.Name()); !strings.Contains(path, "journal") {
			b, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(b[:1<<20], data[:1<<20]) {
				t.Fatalf("the partial file of %d bytes: %v", len(b), err)
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err == nil {
				_, err = f.WriteAt([]byte{b[5<<20] ^ 1}, 5<<20)
				_ = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	o := w.options(t)
	o.Recheck = true
	if sum := r.finish(t, o); sum.ResumedBytes != 5<<20 {
		t.Errorf("%d bytes counted, and the sixth piece was damaged", sum.ResumedBytes)
	}
}

// TestWrittenFilesAreVerified: the written file is read back from the disk before it gets its name.
func TestWrittenFilesAreVerified(t *testing.T) {
	w := tcpWay(t)
	for _, push := range []bool{true, false} {
		r := newResumed(t, w, push)
		r.source = "src/."
		makeTree(t, filepath.Join(r.from, "src"))
		o := w.options(t)
		o.VerifyWritten = true
		r.finish(t, o)
	}
}

// TestJournalWithoutItsFile: a copy that is killed right after a file got its name leaves the
// journal. The next copy, which keeps the file, removes it.
func TestJournalWithoutItsFile(t *testing.T) {
	for _, w := range ways(t)[:1] {
		r := newResumed(t, w, true)
		if err := os.WriteFile(filepath.Join(r.from, "src"), make([]byte, xfer.ResumeBytes+1), 0o644); err != nil {
			t.Fatal(err)
		}
		journal := filepath.Join(r.to, fileset.JournalName("dst"))
		for _, o := range []xfer.Options{{}, {DryRun: true}, {}} {
			if err := os.WriteFile(journal, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			o.Times = true
			sum, err := r.copy(t, t.Context(), o)
			if err != nil {
				t.Fatal(sum, err)
			}
			if _, err := os.Stat(journal); os.IsNotExist(err) == o.DryRun {
				t.Errorf("dry run %v: the journal: %v", o.DryRun, err)
			}
		}
	}
}
