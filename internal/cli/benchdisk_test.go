package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

func TestBenchDisk(t *testing.T) {
	s, dir := startServer(t), t.TempDir()
	disk := `DISK \S+ takes \d+\.\d MiB/s \(2\.0 MiB in \d+\.\d+ s, of that \d+\.\d+ s sync\) and gives \d+\.\d MiB/s \(\d+\.\d+ s.*\)\n\n`
	r := gdrcp(t, "bench", "--disk", dir, "--bytes", "2M").want(t, exitOK)
	if !regexp.MustCompile(`^` + disk + `$`).MatchString(r.out) {
		t.Errorf("without a server it wrote\n%s", r.out)
	}
	r = gdrcp(t, "bench", "--disk", dir, "--bytes", "2M", "--rounds", "0", "rdma://"+s.addr).want(t, exitOK)
	if !regexp.MustCompile(`(?s)^` + disk + `BANDWIDTH.*\nSLOWER with \S+ as the destination: the (disk|wire) \(disk \d+\.\d, wire \d+\.\d MiB/s\); as the source: the (disk|wire) \(disk \d+\.\d MiB/s\)\n$`).MatchString(r.out) {
		t.Errorf("with a server it wrote\n%s", r.out)
	}
	var seen []string
	for _, e := range gdrcp(t, "bench", "--json", "--disk", dir, "--bytes", "2M", "--rounds", "0", "--hash", "none", "rdma://"+s.addr).want(t, exitOK).events(t) {
		seen = append(seen, e["event"].(string))
		if e["event"] == "disk" && (e["bytes"] != 2097152.0 || e["write_mib_per_s"].(float64) <= 0 || e["read_mib_per_s"].(float64) <= 0) {
			t.Errorf("event %v", e)
		}
	}
	if !slices.Equal(seen, []string{"disk", "bandwidth", "slower"}) {
		t.Errorf("events %v", seen)
	}
	if r = gdrcp(t, "bench", "--disk", dir, "--bytes", "5000").want(t, exitOK); !strings.Contains(r.out, "(4.9 KiB in ") {
		t.Errorf("of 5000 bytes it wrote\n%s", r.out)
	}
	gdrcp(t, "bench", "--disk", filepath.Join(dir, "none")).want(t, exitError)
	gdrcp(t, "bench").want(t, exitUsage)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// If a directory lacks room for the benchmark, the error suggests a smaller file and no
// other copy.
func TestBenchDiskWithoutRoom(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := gdrcp(t, "bench", "--disk", small, "--bytes", "4M").want(t, exitError)
	if !regexp.MustCompile(`^gdrcp: measure \S+: .*no space left on device\nhint: measure with less: --bytes SIZE\n$`).MatchString(r.err) {
		t.Errorf("it wrote %q", r.err)
	}
	if left, err := os.ReadDir(small); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestSlowerOfDiskAndWire(t *testing.T) {
	d := xfer.DiskRates{Bytes: 100 << 20, WriteSeconds: 1, ReadSeconds: 0.1} // 100 and 1000 MiB/s
	for _, c := range []struct {
		wire                float64 // MiB/s
		destination, source string
	}{{50, "wire", "wire"}, {500, "disk", "wire"}, {5000, "disk", "disk"}} {
		p, out, _ := newProgram()
		b := &benchRun{program: p, disk: "/d"}
		quick := xfer.Bandwidth{Bytes: 1 << 40, Seconds: time.Second.Seconds()}
		b.tellSlower(&d, []*xfer.Bandwidth{&quick, {Bytes: int64(c.wire * (1 << 20)), Seconds: 1}})
		if !regexp.MustCompile(`destination: the ` + c.destination + ` .* as the source: the ` + c.source + ` `).MatchString(out.String()) {
			t.Errorf("a wire of %v MiB/s: %s", c.wire, out)
		}
	}
}
