package program

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"gdrcp/tests/launch"
)

// pipe returns both ends of a pipe, which is closed with the test.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() {
		r.Close()
		w.Close()
	})
	return r, w
}

// TestTarThroughPipes sends an archive of a tree through a pipe at each end.
func TestTarThroughPipes(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		if _, err := exec.LookPath("tar"); err != nil {
			t.Skip("needs tar")
		}
		if l.name == "siw0" && !full() {
			t.Skip("is tried on the other device: GDRCP_TEST_FULL=1 runs both")
		}
		s := newSides(t, l)
		makeTree(t, s.here+"/tree", 300, 1)
		makeFile(t, s.here+"/tree/big", 20*mib+77, 2)
		through := func(fill *exec.Cmd, args ...string) *process {
			t.Helper()
			r, w := pipe(t)
			fill.Stdout, fill.Stderr = w, os.Stderr
			must(t, fill.Start())
			w.Close()
			p := start(t, how{stdin: r}, append(s.copyArgs(), args...)...)
			r.Close()
			p.wantCode(0)
			must(t, fill.Wait())
			return p
		}
		p := through(exec.Command("tar", "c", "-C", s.here, "tree"), "-", s.url("x.tar"))
		p.wantOne(strings.Split(p.stderr.String(), "\n"), `^copied 1 file, .*, verified$`)
		if p.stdout.String() != "" {
			t.Errorf("a push wrote to standard output: %s", p)
		}
		r, w := pipe(t)
		untar := exec.Command("tar", "x", "-C", t.TempDir())
		untar.Stdin, untar.Stderr = r, os.Stderr
		must(t, untar.Start())
		r.Close()
		p = start(t, how{stdout: w}, append(s.copyArgs(), "-v", s.url("x.tar"), "-")...)
		w.Close()
		p.wantCode(0)
		must(t, untar.Wait())
		sameTree(t, s.here+"/tree", untar.Args[3]+"/tree", false)
		p.wantOne(strings.Split(p.stderr.String(), "\n"), `^copied 1 file, .*, verified$`)
		s.stop()
	})
}

// TestStreamsToFiles: standard input and output may be files, or empty.
func TestStreamsToFiles(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	for _, size := range []int64{0, 1, 3*mib + 5} {
		makeFile(t, s.here+"/in", size, uint64(size))
		in, err := os.Open(s.here + "/in")
		must(t, err)
		out, err := os.Create(s.here + "/out")
		must(t, err)
		start(t, how{stdin: in}, "-q", "-", s.url("x")).wantCode(0)
		start(t, how{stdout: out}, "-q", s.url("x"), "-").wantCode(0)
		in.Close()
		out.Close()
		if why := differAt(s.here+"/in", s.here+"/out"); why != "" {
			t.Errorf("%d bytes: the copy %s", size, why)
		}
		if p := run(t, how{}, s.url("x"), "-").wantCode(0); int64(len(p.stdout.String())) != size {
			t.Errorf("%d bytes, and nothing else, were wanted: %d came", size, len(p.stdout.String()))
		}
	}
	start(t, how{}, "-q", "-", s.url("nothing")).wantCode(0) // no input is /dev/null
	if st, err := os.Stat(s.there + "/nothing"); err != nil || st.Size() != 0 {
		t.Errorf("of no input: %v, %v", st, err)
	}
	s.stop()
}

// TestStreamEvents: with --json, messages go to standard error and only data to
// standard output, even if something fails.
func TestStreamEvents(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	write(t, s.there+"/f", "data\n")
	told := func(p *process) *process {
		text := p.stderr.String()
		p.stdout = launch.Output{}
		p.stdout.Write([]byte(text))
		return p
	}
	p := run(t, how{}, "--json", s.url("f"), "-").wantCode(0)
	if p.stdout.String() != "data\n" {
		t.Errorf("standard output: %s", p)
	}
	if e := told(p).event("summary"); e["files"] != 1.0 || e["verified"] != true {
		t.Errorf("summary: %v", e)
	}
	for _, c := range []struct {
		code int
		args []string
	}{{1, []string{s.url("none"), "-"}}, {2, []string{"-r", s.url("f"), "-"}}, {2, []string{"--nonsense", s.url("f"), "-"}}} {
		p := run(t, how{}, append([]string{"--json"}, c.args...)...).wantCode(c.code)
		if p.stdout.String() != "" {
			t.Errorf("standard output: %s", p)
		}
		if e := told(p).event("error"); e["exit_code"] != float64(c.code) {
			t.Errorf("error: %v", e)
		}
	}
	s.stop()
}

// TestStreamUsage: invalid uses of a stream are refused before anything is connected.
func TestStreamUsage(t *testing.T) {
	onHost(t)
	const remote = "rdma://127.0.0.1:9/x"
	for _, args := range []string{
		"- " + remote + "/", "- rdma://127.0.0.1:9", "- rdma://127.0.0.1:9/x/..", "- f " + remote, "f - " + remote, "- -", remote + " " + remote + "y -",
		"-r - " + remote, "-r " + remote + " -", "-a - " + remote, "-p - " + remote, "-t " + remote + " -", "--manifest m - " + remote, "--manifest m " + remote + " -",
		"-l " + remote + " -", "--exclude x - " + remote, "-H " + remote + " -", "-X - " + remote, "--write-manifest m - " + remote, "--gpu auto - " + remote, "--gpu 0 " + remote + " -", "--remote-gpu auto - " + remote,
	} {
		run(t, how{}, strings.Fields(args)...).wantFailure(2, `.`)
	}
}

// TestInterruptedStream interrupts copies whose streams block.
func TestInterruptedStream(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	makeFile(t, s.there+"/f", 20*mib, 1)
	in, feed := pipe(t)
	push := start(t, how{stdin: in}, "-", s.url("new"))
	in.Close()
	_, err := io.CopyN(feed, noise(1), 3*mib)
	must(t, err)
	awaitPartial(t, s.there, push)
	takes, out := pipe(t)
	pull := start(t, how{stdout: out}, s.url("f"), "-")
	out.Close()
	_, err = io.CopyN(io.Discard, takes, mib)
	must(t, err)
	for _, p := range []*process{push, pull} {
		p.signal(syscall.SIGINT)
		p.wait(launch.Slow(lastWord))
		p.wantFailure(130, "interrupted")
	}
	s.stop() // waits for the sessions
	if left := someFiles(s.there, 10); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

// TestStreamsThatBreak: if the reader leaves, a disk fills or a server dies, the copy
// ends with one line, and no partial file has a final name.
func TestStreamsThatBreak(t *testing.T) {
	onHost(t)
	t.Run("reader gone", func(t *testing.T) {
		s := newSides(t, tcpLink())
		makeFile(t, s.there+"/f", 20*mib, 1)
		r, w := pipe(t)
		p := start(t, how{stdout: w}, s.url("f"), "-")
		w.Close()
		_, err := io.CopyN(io.Discard, r, mib)
		must(t, err)
		r.Close()
		p.wantFailure(1, `^gdrcp: write standard output: broken pipe$`)
		s.stop()
	})
	t.Run("disk full", func(t *testing.T) {
		s := onSmallDisk(t, direction{push: true}, "8m")
		write(t, s.there+"/f", "old")
		makeFile(t, s.here+"/big", 20*mib, 1)
		in, err := os.Open(s.here + "/big")
		must(t, err)
		defer in.Close()
		log := len(s.stderr.String())
		start(t, how{stdin: in}, "-", s.url("f")).wantFailure(1, `(?i)no space left`)
		s.awaitSessionEnd(t, log, launch.Slow(lastWord))
		if text, err := os.ReadFile(s.there + "/f"); err != nil || string(text) != "old" {
			t.Errorf("%q was published: %v", text, err)
		}
		noTemps(t, s.there)
	})
	t.Run("full device", func(t *testing.T) {
		s := newSides(t, tcpLink())
		makeFile(t, s.there+"/f", 3*mib, 1)
		out, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		must(t, err)
		defer out.Close()
		start(t, how{stdout: out}, s.url("f"), "-").wantFailure(1, `^gdrcp: write standard output: no space left on device`)
		s.stop()
	})
	t.Run("unreadable input", func(t *testing.T) {
		s := newSides(t, tcpLink())
		in, err := os.Open(s.here)
		must(t, err)
		defer in.Close()
		log := len(s.stderr.String())
		start(t, how{stdin: in}, "-", s.url("f")).wantFailure(1, `^gdrcp: read standard input: is a directory$`)
		s.awaitSessionEnd(t, log, launch.Slow(lastWord))
		s.stop()
		noTemps(t, s.there)
	})
	t.Run("server killed", func(t *testing.T) {
		s := newSides(t, tcpLink())
		in, feed := pipe(t)
		p := start(t, how{stdin: in}, "-", s.url("f"))
		in.Close()
		_, err := io.CopyN(feed, noise(1), 3*mib)
		must(t, err)
		awaitPartial(t, s.there, p)
		s.signal(syscall.SIGKILL)
		p.wantFailure(1, `lost`)
		if _, err := os.Lstat(s.there + "/f"); err == nil {
			t.Error("it was published")
		}
	})
}

// TestMemoryOfAStream sends more through pipes than either end may hold.
func TestMemoryOfAStream(t *testing.T) {
	onHost(t)
	bytes := int64(512 * mib)
	if testing.Short() {
		bytes = 128 * mib
	}
	s := newSides(t, tcpLink())
	needRoom(t, s.there, bytes)
	in, feed := pipe(t)
	push := start(t, how{stdin: in}, "-", s.url("f"))
	in.Close()
	zeros := make([]byte, mib)
	for range bytes / mib {
		_, err := feed.Write(zeros)
		must(t, err)
	}
	feed.Close()
	push.wantCode(0)
	takes, out := pipe(t)
	pull := start(t, how{stdout: out}, s.url("f"), "-")
	out.Close()
	n, err := io.Copy(io.Discard, takes)
	must(t, err)
	pull.wantCode(0)
	if n != bytes {
		t.Errorf("%d of %d bytes came back", n, bytes)
	}
	// The buffer of a stream is as large as its ring.
	for name, took := range map[string]int64{"push": push.peakBytes - 2*ringBytes, "pull": pull.peakBytes - ringBytes, "server": peakOf(s.cmd.Process.Pid) - 2*ringBytes} {
		if took > maxBytes {
			t.Errorf("%s took %d MiB beyond its ring", name, took/mib)
		}
	}
	if !regexp.MustCompile(fmt.Sprintf(`copied 1 file, %d MiB`, bytes/mib)).MatchString(push.stderr.String()) {
		t.Errorf("the last line: %s", push)
	}
	s.stop()
}
