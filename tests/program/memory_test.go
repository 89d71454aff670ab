package program

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

const (
	mib = 1 << 20
	// ringBytes is the default size of one end's ring: 16 slots of 1 MiB, each with a
	// header of at most 64 KiB.
	ringBytes = 17 * mib
	// maxBytes is the most memory that an end may use beyond its ring, whatever it
	// copies.
	maxBytes = 96 * mib
	// maxGrowth is how much that may differ between few and many files.
	maxGrowth = 8 * mib
)

// needRoom skips a test if the file system of dir, or the machine if that is in memory,
// lacks the space.
func needRoom(t *testing.T, dir string, bytes int64) {
	t.Helper()
	var fs syscall.Statfs_t
	must(t, syscall.Statfs(dir, &fs))
	free := int64(fs.Bavail) * fs.Bsize
	if fs.Type == unix.TMPFS_MAGIC {
		text, _ := os.ReadFile("/proc/meminfo") // of proc(5)
		_, available, _ := strings.Cut(string(text), "MemAvailable:")
		var kib int64
		if _, err := fmt.Sscan(available, &kib); err == nil {
			free = min(free, kib<<10)
		}
	}
	if free < bytes {
		t.Skipf("needs %d MiB in %s, which has %d (TMPDIR chooses another)", bytes/mib, dir, free/mib)
	}
}

// peaks runs a copy and returns the peak memory of each end beyond its ring.
func peaks(t *testing.T, s *sides, operands ...string) (client, server int64) {
	t.Helper()
	c := start(t, how{}, append(s.link.copyArgs(), operands...)...)
	if code := c.wait(launch.Slow(10 * time.Minute)); code != 0 {
		t.Fatalf("exit code %d: %s", code, c)
	}
	client, server = c.peakBytes-ringBytes, peakOf(s.cmd.Process.Pid)-ringBytes
	t.Logf("beyond the rings: client %d MiB, server %d MiB, in %.1f s", client/mib, server/mib, c.took.Seconds())
	for who, bytes := range map[string]int64{"client": client, "server": server} {
		if bytes > maxBytes {
			t.Errorf("the %s took %d MiB beyond its ring, more than %d", who, bytes/mib, maxBytes/mib)
		}
	}
	return client, server
}

// TestMemoryOfLargeFile copies a file that consists mostly of holes.
func TestMemoryOfLargeFile(t *testing.T) {
	onHost(t)
	sizeBytes, dataBytes := int64(2<<30), int64(256*mib)
	if full() {
		sizeBytes, dataBytes = 16<<30, 2<<30
	}
	if testing.Short() {
		sizeBytes, dataBytes = 1<<30, 64*mib
	}
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		needRoom(t, from, 2*dataBytes+dataBytes/4)
		makeSparse(t, from+"/sparse", sizeBytes, dataBytes)
		peaks(t, s, s.operands(d, s.via(), "sparse", "copy")...)
		if why := differAt(from+"/sparse", to+"/copy"); why != "" {
			t.Errorf("the copy %s", why)
		}
		a, b := allocated(t, from+"/sparse"), allocated(t, to+"/copy")
		t.Logf("allocated: %d MiB of the original, %d MiB of the copy", a/mib, b/mib)
		if b > a+a/64 {
			t.Errorf("holes did not stay holes: the original takes %d bytes, the copy %d", a, b)
		}
	})
}

// makeSparse makes a file with dataBytes of data scattered over it; the rest are holes.
func makeSparse(t testing.TB, path string, sizeBytes, dataBytes int64) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate(sizeBytes))
	const extents = 128
	r := rand.New(rand.NewPCG(3, 3))
	block := make([]byte, dataBytes/extents)
	for i := range int64(extents) {
		if _, err := noise(uint64(i)).Read(block); err != nil {
			t.Fatal(err)
		}
		// It is somewhere in its share of the file, but not at the boundary of a piece.
		room := sizeBytes/extents - int64(len(block))
		_, err := f.WriteAt(block, i*(sizeBytes/extents)+r.Int64N(room/4096)*4096)
		must(t, err)
	}
}

// TestMemoryOfManyFiles copies two trees, of which one has several times the files of
// the other: the peak memory must not show that.
func TestMemoryOfManyFiles(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	// With fewer, the collector's heap has not reached its usual size yet.
	few, many := 100_000, 200_000
	if full() {
		few, many = 200_000, 1_000_000
	}
	if testing.Short() {
		t.Skip("takes a minute")
	}
	for _, shape := range []struct {
		name string
		dirs int
	}{{"tree", 1000}, {"flat", 1}} {
		for _, d := range []direction{{true}, {false}} {
			if !full() && d.push != (shape.dirs == 1) {
				continue // the sample includes each shape and each direction
			}
			t.Run(shape.name+" "+d.String(), func(t *testing.T) {
				clientFew, serverFew := manyFiles(t, d, few, shape.dirs)
				clientMany, serverMany := manyFiles(t, d, many, shape.dirs)
				for who, grew := range map[string]int64{"client": clientMany - clientFew, "server": serverMany - serverFew} {
					if grew > maxGrowth || grew < -maxGrowth {
						t.Errorf("the %s's memory differs by %d KiB between %d and %d files", who, grew>>10, few, many)
					}
				}
			})
		}
	}
}

func manyFiles(t *testing.T, d direction, files, dirs int) (client, server int64) {
	t.Helper()
	s := newSides(t, tcpLink())
	from, to := s.ends(d)
	needRoom(t, from, int64(files)*2*6<<10)
	makeSmallFiles(t, from+"/many", files, dirs)
	client, server = peaks(t, s, append(s.operands(d, s.via(), "many", "copy"), "-rl")...)
	sameCount(t, to+"/copy", files, dirs)
	s.stop()
	// Two trees of a million files each are too much.
	must(t, os.RemoveAll(from))
	must(t, os.RemoveAll(to))
	return client, server
}

// TestManyFilesWithFewDescriptors: the sink writes and publishes with its limited
// number of open files, without a deadlock.
func TestManyFilesWithFewDescriptors(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	s := newSidesAs(t, how{before: []string{"prlimit", "--nofile=200:200"}}, tcpLink())
	const files, dirs = 3000, 3
	for _, d := range []direction{{push: true}, {push: false}} {
		from, to := s.ends(d)
		makeSmallFiles(t, from+"/many", files, dirs)
		s.copy(t, append(s.operands(d, s.via(), "many", "copy"), "-r")...).wantCode(0)
		sameCount(t, to+"/copy", files, dirs)
		must(t, os.RemoveAll(from+"/many"))
		must(t, os.RemoveAll(to+"/copy"))
	}
}

func smallName(dir string, i, dirs int) string {
	return filepath.Join(dir, fmt.Sprintf("folder-%04d", i%dirs), "file-"+strconv.Itoa(i))
}

// makeSmallFiles makes files of a few bytes, in dirs directories.
func makeSmallFiles(t *testing.T, dir string, files, dirs int) {
	t.Helper()
	for i := range dirs {
		must(t, os.MkdirAll(filepath.Dir(smallName(dir, i, dirs)), 0o755))
	}
	var g errgroup.Group
	for part := range 4 {
		g.Go(func() error {
			for i := part; i < files; i += 4 {
				if err := os.WriteFile(smallName(dir, i, dirs), strconv.AppendInt(nil, int64(i), 10), 0o644); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, g.Wait())
}

// sameCount counts the files of makeSmallFiles and checks the content of some.
func sameCount(t *testing.T, dir string, files, dirs int) {
	t.Helper()
	count := 0
	for i := range dirs {
		names, err := os.ReadDir(filepath.Dir(smallName(dir, i, dirs)))
		must(t, err)
		count += len(names)
	}
	if count != files {
		t.Errorf("%d files arrived, not %d", count, files)
	}
	for i := 0; i < files; i += max(1, files/5000) {
		if text, err := os.ReadFile(smallName(dir, i, dirs)); err != nil || string(text) != strconv.Itoa(i) {
			t.Fatalf("file %d: %q, %v", i, text, err)
		}
	}
}
