package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// TestFilesWhoseEndNobodyHeard: small files get their names while a large one before them is in
// progress, and the connection is lost before that is reported. A later attempt finds them there;
// but this copy made them, so its numbers are those of a copy without an interruption. Files that
// existed before count as usual.
func TestFilesWhoseEndNobodyHeard(t *testing.T) {
	rdmatest.BesideOthers(t)
	for _, push := range []bool{true, false} {
		for name, change := range map[string]func(*xfer.Options){
			"compared":            func(o *xfer.Options) { o.Checksum, o.Times = true, false },
			"existing files stay": func(o *xfer.Options) { o.IgnoreExisting, o.IgnoreTimes = true, true },
			"same sizes stay":     func(o *xfer.Options) { o.SizeOnly = true },
			"longer files stay":   func(o *xfer.Options) { o.AppendVerify, o.IgnoreTimes = true, true },
		} {
			t.Run(fmt.Sprintf("push %v, %s", push, name), func(t *testing.T) {
				once, twice := copyWithCut(t, push, false, change), copyWithCut(t, push, true, change)
				if got, want := numbersOf(twice), numbersOf(once); got != want {
					t.Errorf("with a lost connection\n%s, without\n%s", got, want)
				}
			})
		}
	}
}

// numbersOf are the numbers of a copy that a lost connection must not change.
func numbersOf(s *xfer.Summary) string {
	return fmt.Sprintf("%d copied, %d unchanged, %d kept, %d bytes: %d sent, %d compared, %d the same, %d arrived before, %d kept; root %x, verified %v",
		s.Files, s.Unchanged, s.Kept, s.Bytes, s.SentBytes, s.ComparedBytes, s.SameBytes, s.ResumedBytes, s.SkippedBytes, s.Content, s.Verified)
}

// copyWithCut copies a large file and small ones, one of which exists already. With cut the
// connection is lost when the others have their names and the large one has not.
func copyWithCut(t *testing.T, push, cut bool, change func(*xfer.Options)) *xfer.Summary {
	t.Helper()
	w := tcpWay(t)
	var healed atomic.Bool
	src, dst := t.TempDir(), ""
	faults := rdmatest.Faults{Drop: func(p rdmatest.Posted) bool {
		if !cut || healed.Load() || !isPayload(p) {
			return false
		}
		// The last pieces of the large file wait for the small ones, long since posted.
		for range 5000 {
			if names, _ := filepath.Glob(filepath.Join(dst, "z*")); len(names) == 3 {
				return true
			}
			if p.NthWrite < 28 {
				return false
			}
			time.Sleep(time.Millisecond)
		}
		return true
	}}
	if !push {
		w.provider = rdmatest.Faulty(w.provider, faults)
		faults = rdmatest.Faults{}
	}
	s := serve(t, w)
	dst = filepath.Join(s.root, "copy")
	if !push {
		src, dst = filepath.Join(s.root, "src"), filepath.Join(t.TempDir(), "copy")
	}
	then := time.Unix(1e9, 0)
	for name, size := range map[string]int{"a": 16 << 20, "same": 5000, "z1": 100, "z2": 100 << 10, "z3": 0} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i*i>>8 + size)
		}
		for _, dir := range []string{src, dst} {
			if dir == src || name == "same" {
				write(t, filepath.Join(dir, name), content)
				if err := os.Chtimes(filepath.Join(dir, name), then, then); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	o := w.options(t)
	o.Times, o.Tries, o.Tally = true, xfer.NewTries(), new(xfer.Tally)
	if change(&o); cut {
		o.BytesPerSecond = 8 << 20
	}
	client := w.client(faults)
	copyIt := func() (*xfer.Summary, error) {
		if push {
			return client.Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
		}
		return client.Pull(t.Context(), s.ep, []string{"src/."}, dst, o)
	}
	sum, err := copyIt()
	if cut {
		if o.BytesPerSecond = 0; err == nil || !o.Tries.MayGoOn(err) {
			t.Fatalf("the first try: %v", err)
		}
		healed.Store(true)
		o.Tries.Again(o.Tally)
		sum, err = copyIt()
	}
	if err != nil {
		t.Fatal(err)
	}
	if p := o.Tally.Read(); p.Bytes != sum.Bytes || p.TotalBytes != sum.Bytes {
		t.Errorf("in the end %+v, and %d bytes were copied", p, sum.Bytes)
	}
	return sum
}
