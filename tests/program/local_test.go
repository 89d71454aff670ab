package program

import (
	"os"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// Both ends of a copy are this process. Nobody else can connect to it, and everything
// is verified as between two hosts.
func TestLocalCopy(t *testing.T) {
	onHost(t)
	from, to := t.TempDir(), t.TempDir()
	makeTree(t, from+"/tree", 600, 1)
	makeFile(t, from+"/tree/big", 40*mib+77, 2)
	makeSparse(t, from+"/tree/sparse", 64*mib, 2*mib)
	p := run(t, how{}, "-a", from+"/tree", to)
	p.wantCode(0)
	sameTree(t, from+"/tree", to+"/tree", true)
	if a := allocated(t, to+"/tree/sparse"); a > 3*mib {
		t.Errorf("holes take %d bytes", a)
	}
	run(t, how{}, "-rl", "--encrypt", "--compress", "zstd", "--qps", "4", "--hash", "blake3", from+"/tree", to+"/again").wantCode(0)
	sameTree(t, from+"/tree", to+"/again", false)
}

// Standard input is copied to a file, and a file to standard output, without a server.
func TestLocalStreams(t *testing.T) {
	onHost(t)
	from, to := t.TempDir(), t.TempDir()
	makeFile(t, from+"/x", 20*mib+77, 2)
	in, err := os.Open(from + "/x")
	must(t, err)
	defer in.Close()
	run(t, how{stdin: in}, "-", to+"/in").wantCode(0)
	out, err := os.Create(to + "/out")
	must(t, err)
	defer out.Close()
	run(t, how{stdout: out}, from+"/x", "-").wantCode(0)
	for _, name := range []string{"/in", "/out"} {
		if why := differAt(from+"/x", to+name); why != "" {
			t.Errorf("%s %s", name, why)
		}
	}
}

// A copy that does not fit is refused before the first byte, with a hint.
func TestLocalDiskTooSmall(t *testing.T) {
	onHost(t)
	from, to := t.TempDir(), t.TempDir()
	smallDisk(t, to, "8m")
	makeFile(t, from+"/big", 16*mib, 1)
	p := run(t, how{}, from+"/big", to+"/copy")
	p.wantFailure(1, `(?is)^gdrcp: [^:]*(no space left|needed).*\nhint: make room at the destination and copy again$`)
	if left := someFiles(to, 100); len(left) > 0 || len(temps(to)) > 0 {
		t.Errorf("before the first byte there are %q %q", left, temps(to))
	}
}

// An interrupted copy leaves no partial file under a final name, and its exit code
// reports the interruption. The same command resumes it.
func TestLocalInterrupted(t *testing.T) {
	onHost(t)
	from, to := t.TempDir(), t.TempDir()
	makeFile(t, from+"/big", 64*mib, 1)
	p := start(t, how{}, "--bwlimit", "8M", from+"/big", to+"/copy")
	awaitPartial(t, to, p)
	p.signal(syscall.SIGINT)
	if code := p.wait(launch.Slow(10 * time.Second)); code != 130 {
		t.Errorf("exit code %d: %s", code, p)
	}
	if left := someFiles(to, 100); len(left) > 0 || len(temps(to)) != 2 { // a partial file and its journal
		t.Errorf("there are %q %q", left, temps(to))
	}
	run(t, how{}, from+"/big", to+"/copy").wantCode(0)
	if why := differAt(from+"/big", to+"/copy"); why != "" || len(temps(to)) > 0 {
		t.Errorf("the second copy %s, and there are %q", why, temps(to))
	}
}
