package xfer_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// registeredBytes is a file of several regions, with an end that is no whole piece.
const registeredBytes = 80<<20 + 5

// overRDMA runs a test over the devices that there are, or over one that is imitated.
func overRDMA(t *testing.T, test func(t *testing.T, w way)) {
	if os.Getenv("GDRCP_TEST_RDMA") != "" {
		over(t, test)
		return
	}
	t.Run("imitated", func(t *testing.T) { test(t, imitatedWay(t)) })
}

// overPinned is for tests in which files are cut short under a device: the imitated one would
// have the processor touch what is not there any more.
func overPinned(t *testing.T, test func(t *testing.T, w way)) {
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Skip("no RDMA device, which pins pages: run tests/bed/run-tests ./xfer")
	}
	over(t, test)
}

// imitatedWay is a device that carries its bytes by TCP.
func imitatedWay(t *testing.T) way {
	w := tcpWay(t)
	return way{"imitated", twoNICs{w.provider}, w.addr, 1}
}

// onTmpfs skips a test where the tests' files are not in memory.
func onTmpfs(t *testing.T) {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("files are not in memory here (%v): set TMPDIR to a directory of a tmpfs, or free 2 GiB of /dev/shm", err)
	}
}

// randomFile writes a file of random bytes.
func randomFile(t *testing.T, path string, n int) []byte {
	t.Helper()
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{7}).Read(data)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return data
}

// registering asks for registered files. Few slots are far ahead of the regions.
func registering(t *testing.T, w way) xfer.Options {
	o := w.options(t)
	o.IO, o.Slots = fileset.IORegistered, 4
	return o
}

// Files in memory are sent from, and landed in, as they are, whichever end is the client.
func TestRegisteredFiles(t *testing.T) { overRDMA(t, testRegisteredFiles) }

func testRegisteredFiles(t *testing.T, w way) {
	onTmpfs(t)
	for _, push := range []bool{true, false} {
		t.Run(map[bool]string{true: "push", false: "pull"}[push], func(t *testing.T) {
			r := newResumed(t, w, push)
			data := randomFile(t, filepath.Join(r.from, "src"), registeredBytes)
			sum, err := r.copy(t, t.Context(), registering(t, w))
			if err != nil || !sum.Verified || sum.Repairs != 0 {
				t.Fatalf("%+v, %v", sum, err)
			}
			sameBytes(t, filepath.Join(r.to, "dst"), data)
			noTemps(t, r.to)
			// The end of a file is read, and the first of it lands in slots.
			if sum.Read.Registered < 64<<20 || sum.Written.Registered < 16<<20 {
				t.Errorf("read %+v, written %+v", sum.Read, sum.Written)
			}
		})
	}
}

// What is damaged on the way to a region is sent again, to a slot.
func TestRegisteredFilesDamaged(t *testing.T) { overRDMA(t, testRegisteredFilesDamaged) }

func testRegisteredFilesDamaged(t *testing.T, w way) {
	onTmpfs(t)
	for _, c := range []struct {
		name   string
		damage func(p rdmatest.Posted) (int, bool)
	}{
		{"payloads", func(p rdmatest.Posted) (int, bool) { return p.WR.Len / 2, isPayload(p) && p.NthWrite%9 == 0 }},
		// The number of a region, which is in the part of a header that has no checksum.
		{"regions", func(p rdmatest.Posted) (int, bool) { return 56, isHeader(p) && p.NthWrite%9 == 0 }},
		{"headers", func(p rdmatest.Posted) (int, bool) { return p.WR.Len / 2, isHeader(p) && p.NthWrite%9 == 0 }},
	} {
		if w.leavesOut(c.name, "regions") {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, w)
			from := filepath.Join(t.TempDir(), "src")
			data := randomFile(t, from, registeredBytes)
			var damaged atomic.Int64
			client := w.client(rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
				at, yes := c.damage(p)
				if yes {
					damaged.Add(1)
				}
				return at, yes
			}})
			sum, err := client.Push(t.Context(), []string{from}, s.ep, "dst", registering(t, w))
			if err != nil || !sum.Verified {
				t.Fatalf("%+v, %v", sum, err)
			}
			sameBytes(t, filepath.Join(s.root, "dst"), data)
			if damaged.Load() == 0 || sum.Repairs == 0 || sum.Written.Registered == 0 {
				t.Errorf("%d damaged, %d repairs, written %+v", damaged.Load(), sum.Repairs, sum.Written)
			}
		})
	}
}

// Where a manifest says what arrives, nothing lands where the source can still write to.
func TestNoRegionsBesideAManifest(t *testing.T) { overRDMA(t, testNoRegionsBesideAManifest) }

func testNoRegionsBesideAManifest(t *testing.T, w way) {
	onTmpfs(t)
	s := serve(t, w)
	data := randomFile(t, filepath.Join(s.root, "src"), registeredBytes)
	dir := t.TempDir()
	o := registering(t, w)
	o.WriteManifest = filepath.Join(dir, "manifest")
	sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src"}, filepath.Join(dir, "dst"), o)
	if err != nil || !sum.Verified {
		t.Fatalf("%+v, %v", sum, err)
	}
	sameBytes(t, filepath.Join(dir, "dst"), data)
	if sum.Written.Registered != 0 || sum.Read.Registered == 0 {
		t.Errorf("read %+v, written %+v", sum.Read, sum.Written)
	}
}

// A copy into a region that is cut off can be gone on with.
func TestRegisteredFilesGoOn(t *testing.T) { overRDMA(t, testRegisteredFilesGoOn) }

func testRegisteredFilesGoOn(t *testing.T, w way) {
	onTmpfs(t)
	for _, push := range []bool{true, false} {
		r := newResumed(t, w, push)
		data := randomFile(t, filepath.Join(r.from, "src"), registeredBytes)
		r.cutOff(t, registering(t, w), 40<<20)
		sum := r.finish(t, registering(t, w))
		sameBytes(t, filepath.Join(r.to, "dst"), data)
		if sum.ResumedBytes < 30<<20 {
			t.Errorf("push %v: %d bytes had arrived", push, sum.ResumedBytes)
		}
	}
}

// A file that is cut short, or changes, while it is sent from as it is ends as changed, and
// the process lives.
func TestRegisteredFileChanges(t *testing.T) { overPinned(t, testRegisteredFileChanges) }

func testRegisteredFileChanges(t *testing.T, w way) {
	onTmpfs(t)
	for _, c := range []struct {
		name   string
		change func(path string) error
	}{
		{"cut short", func(path string) error { return os.Truncate(path, 20<<20) }},
		{"written to", func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("other"), 60<<20)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, w)
			from := filepath.Join(t.TempDir(), "src")
			randomFile(t, from, registeredBytes)
			var changed atomic.Bool
			client := w.client(rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
				if isPayload(p) && p.NthWrite > 60 && changed.CompareAndSwap(false, true) {
					if err := c.change(from); err != nil {
						t.Error(err)
					}
				}
				return false
			}})
			sum, err := client.Push(t.Context(), []string{from}, s.ep, "dst", registering(t, w))
			if err == nil && sum.Changed != 1 {
				t.Errorf("%+v", sum)
			}
			if _, err := os.Lstat(filepath.Join(s.root, "dst")); err == nil {
				t.Error("it was published")
			}
		})
	}
}

// A sink whose file is cut short under a region by somebody else writes what is missing.
func TestRegionCutShort(t *testing.T) { overPinned(t, testRegionCutShort) }

func testRegionCutShort(t *testing.T, w way) {
	onTmpfs(t)
	s := serve(t, w)
	from := filepath.Join(t.TempDir(), "src")
	data := randomFile(t, from, registeredBytes)
	var cut atomic.Int64
	client := w.client(rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
		if isPayload(p) && p.NthWrite%41 == 0 {
			temps, _ := filepath.Glob(filepath.Join(s.root, ".gdrcp-[0-9a-f]*"))
			for _, f := range temps {
				if os.Truncate(f, 0) == nil {
					cut.Add(1)
				}
			}
		}
		return false
	}})
	o := registering(t, w)
	o.VerifyWritten = true
	sum, err := client.Push(t.Context(), []string{from}, s.ep, "dst", o)
	if cut.Load() == 0 {
		t.Fatal("nothing was cut short")
	}
	if got, _ := os.ReadFile(filepath.Join(s.root, "dst")); got != nil && !bytes.Equal(got, data) {
		t.Errorf("what was published is not what was sent: %+v, %v", sum, err)
	}
}

// Where files are not in memory, a user who asks for it is told.
func TestRegisteredOnDisk(t *testing.T) {
	w := imitatedWay(t)
	dir, err := os.MkdirTemp("/var/tmp", "gdrcp-test-")
	if err != nil {
		t.Skipf("no directory on a disk: %v", err)
	}
	defer os.RemoveAll(dir)
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil || fs.Type == unix.TMPFS_MAGIC {
		t.Skipf("/var/tmp is in memory, too (%v)", err)
	}
	s := serve(t, w)
	randomFile(t, filepath.Join(s.root, "src"), 1<<20)
	_, err = w.client(rdmatest.Faults{}).Pull(context.Background(), s.ep, []string{"src"}, filepath.Join(dir, "dst"), registering(t, w))
	if err == nil || !strings.Contains(err.Error(), "not in memory") {
		t.Errorf("%v", err)
	}
}

// What was on its way to a region, or from one, over a rail that is lost goes over another, and
// over TCP, on which no region is registered.
func TestRegionsOutliveRails(t *testing.T) {
	t.Parallel()
	onTmpfs(t)
	for _, push := range []bool{true, false} {
		t.Run(map[bool]string{true: "push", false: "pull"}[push], func(t *testing.T) {
			t.Parallel()
			gate := newRailGate(1)
			var tally xfer.Tally
			// The first device falls silent in the middle, and the second a little later.
			dies := func(p rdmatest.Posted) bool {
				gate.hold(p)
				done := tally.Read().Bytes
				return done > 60<<20 || done > 40<<20 && p.Conn == 1
			}
			s, o := serveNICs(t, rdmatest.Faults{Stall: dies})
			o.Report, o.Tally = gate.report(o.Report), &tally
			o.IO, o.BytesPerSecond, o.Slots = fileset.IORegistered, 0, 4
			c := &xfer.Client{TCP: tcp.New(), Verbs: twoNICs{rdmatest.Faulty(tcp.New(), rdmatest.Faults{Stall: dies})}}
			sum := copyOneWay(t, c, s, o, push, 96<<20)
			if sum.Read.Registered == 0 || sum.Written.Registered == 0 {
				t.Errorf("read %+v, written %+v, rails %v", sum.Read, sum.Written, bytesOf(sum))
			}
			t.Logf("read %+v, written %+v, rails %v", sum.Read, sum.Written, bytesOf(sum))
		})
	}
}

func sameBytes(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what was sent", path)
	}
}

// A stream's end is known when it has come: no region of its file lies behind it.
func TestNoRegionsOfAStream(t *testing.T) { overRDMA(t, testNoRegionsOfAStream) }

func testNoRegionsOfAStream(t *testing.T, w way) {
	onTmpfs(t)
	s := serve(t, w)
	data := randomFile(t, filepath.Join(t.TempDir(), "src"), registeredBytes)
	in, o := newStream(), registering(t, w)
	o.Recursive, o.Links = false, false
	go in.feed(data, 0)
	sum, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "dst", o)
	if err != nil || !sum.Verified || sum.Written.Registered != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	sameBytes(t, filepath.Join(s.root, "dst"), data)
}
