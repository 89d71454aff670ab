package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// ownGuest skips a test that changes the machine itself, unless it runs in a guest of
// the bed.
func ownGuest(t *testing.T, why string) {
	t.Helper()
	if line, err := os.ReadFile("/proc/cmdline"); err != nil || !strings.Contains(string(line), "bed.node=") {
		t.Skipf("%s: run tests/bed/run-tests", why)
	}
}

// softRail is a Soft-RoCE or Soft-iWARP device: its name, type and interface.
type softRail struct{ name, kind, netdev string }

// softRails returns those of the machine.
func softRails(t testing.TB) (list []softRail) {
	t.Helper()
	for _, m := range regexp.MustCompile(`link (([a-z]+)\d+)/1 .*netdev (\S+)`).FindAllStringSubmatch(command(t, "rdma", "link"), -1) {
		list = append(list, softRail{m[1], m[2], m[3]})
	}
	return list
}

// command runs a command that must succeed. A command that blocks in the kernel may
// ignore signals: it is left behind.
func command(t testing.TB, argv ...string) string {
	t.Helper()
	type result struct {
		out []byte
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		ended <- result{out, err}
	}()
	select {
	case r := <-ended:
		if r.err != nil {
			t.Fatalf("%q: %v: %s", argv, r.err, r.out)
		}
		return string(r.out)
	case <-time.After(launch.Slow(lastWord)):
		t.Fatalf("%q does not end", argv)
	}
	return ""
}

func (r softRail) add(t testing.TB) {
	t.Helper()
	command(t, "rdma", "link", "add", r.name, "type", r.kind, "netdev", r.netdev)
}

func (r softRail) del(t testing.TB) { t.Helper(); command(t, "rdma", "link", "del", r.name) }

// withoutRails removes all devices and returns them by name. The end of the test
// restores exactly these.
func withoutRails(t *testing.T) map[string]softRail {
	t.Helper()
	before := softRails(t)
	t.Cleanup(func() {
		for _, r := range softRails(t) {
			r.del(t)
		}
		for _, r := range before {
			r.add(t)
		}
	})
	rails := map[string]softRail{}
	for _, r := range before {
		rails[r.name] = r
		r.del(t)
	}
	return rails
}

// looked is how long a server may take to notice and report a change of devices: it
// polls every 3 s.
func looked() time.Duration { return 3*time.Second + launch.Slow(lastWord) }

// until waits until a condition is true.
func until(t testing.TB, within time.Duration, what func() bool, otherwise func() string) {
	t.Helper()
	for end := time.Now().Add(within); !what(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise())
		}
	}
}

// waitLog waits until a server has written a line n times.
func (s *server) waitLog(n int, pattern string) {
	s.t.Helper()
	re := regexp.MustCompile(`(?m)` + pattern)
	until(s.t, looked(), func() bool { return len(re.FindAllString(s.stderr.String(), -1)) >= n },
		func() string {
			return fmt.Sprintf("the server has not written /%s/ %d times: %s", pattern, n, s.process)
		})
}

// rdmaFiles counts the RDMA files that a process has open.
func (p *process) rdmaFiles() (n int) {
	p.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
	must(p.t, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.Contains(to, "infiniband") {
			n++
		}
	}
	return n
}

// held is a copy of a stream that lasts until the test ends the stream.
type held struct {
	*process
	rest *os.File
	sent []byte
}

// hold starts a copy of a stream and sends its first part.
func hold(t *testing.T, seed uint64, args ...string) *held {
	t.Helper()
	r, w := pipe(t)
	h := &held{process: start(t, how{stdin: r}, append([]string{"--json", "--slots", "2", "--chunk-size", "1MiB", "-"}, args...)...), rest: w}
	r.Close()
	h.send(seed)
	return h
}

// send sends more of the stream.
func (h *held) send(seed uint64) {
	h.t.Helper()
	part := make([]byte, 60_000) // that fits into a pipe
	_, _ = noise(seed).Read(part)
	_, err := h.rest.Write(part)
	must(h.t, err)
	h.sent = append(h.sent, part...)
}

// connected waits until the copy has connected, and returns its device.
func (h *held) connected() string {
	h.t.Helper()
	until(h.t, launch.Slow(patience), func() bool {
		select {
		case <-h.ended:
			h.t.Fatalf("the copy ended: %s", h)
		default:
		}
		return strings.Contains(h.stdout.String(), `"connected"`)
	}, func() string { return fmt.Sprintf("the copy does not begin: %s", h) })
	device, _ := h.event("connected")["device"].(string)
	return device
}

// finish ends the stream and checks the result.
func (h *held) finish(file string) {
	h.t.Helper()
	must(h.t, h.rest.Close())
	h.wantCode(0)
	if got, err := os.ReadFile(file); err != nil || string(got) != string(h.sent) {
		h.t.Errorf("of %d bytes %d came, or others (%v): %s", len(h.sent), len(got), err, h)
	}
}

// railTest is a server that was started without any device.
type railTest struct {
	*sides
	t      *testing.T
	copies int
}

// copyBy copies over that device, or "tcp", for the given reason.
func (s *railTest) copyBy(device, why string, options ...string) {
	s.t.Helper()
	s.copies++
	to := fmt.Sprint("copy", s.copies)
	p := run(s.t, how{}, append(options, "--json", s.here+"/file", s.url(to))...).wantCode(0)
	e := p.event("summary")
	if told, _ := e["why"].(string); e["device"] != device || !strings.Contains(told, why) {
		s.t.Errorf("copied by %v because of %q, want %s because of %q: %s", e["device"], told, device, why, p)
	}
	if why := differAt(s.here+"/file", s.there+"/"+to); why != "" {
		s.t.Error(why)
	}
}

// by copies over that device of the server.
func (s *railTest) by(r softRail) { s.t.Helper(); s.copyBy(r.name, "", "--remote-rail", r.name) }

// serving waits until the server has reported for the nth time that it listens there.
func (s *railTest) serving(n int, r softRail, addr string) {
	s.t.Helper()
	s.waitLog(n, `^gdrcp: serving \S+ on verbs `+r.name+` `+regexp.QuoteMeta(addr)+`:\d+$`)
}

// onlyInFull leaves to full runs what takes minutes in the bed.
func onlyInFull(t *testing.T) {
	t.Helper()
	if !full() {
		t.Skip("takes minutes on emulated devices: set GDRCP_TEST_FULL=1")
	}
}

// isGone matches errors about a missing device, from listing devices or from opening
// one.
const isGone = "(the device is gone|no such device)"

// stopped waits until the server has reported n times that it no longer listens there,
// for that reason.
func (s *railTest) stopped(n int, r softRail, why string) {
	s.t.Helper()
	s.waitLog(n, `^gdrcp: no longer serving on verbs `+r.name+` [0-9.:]+: .*`+why)
}

// TestRailsComeAndGo adds and removes devices, ports and addresses under a server that
// was started without any: it listens on devices that exist, stops on those that have
// gone, and copies over other devices continue.
func TestRailsComeAndGo(t *testing.T) {
	needRDMA(t)
	onlyInFull(t)
	ownGuest(t, "removes and adds devices")
	rails := withoutRails(t)
	rxe0, rxe1 := rails["rxe0"], rails["rxe1"]
	if rxe0.name == "" || rxe1.name == "" {
		t.Fatalf("there are %v, without rxe0 or rxe1", rails)
	}
	s := &railTest{sides: newSides(t, tcpLink(), "--listen", "0.0.0.0:0"), t: t}
	write(t, s.here+"/file", "content")
	s.copyBy("tcp", "no RDMA device")
	rxe0.add(t)
	rxe1.add(t)
	s.serving(1, rxe0, "10.7.0.1")
	s.serving(1, rxe1, "10.17.0.1")
	s.by(rxe0)
	s.by(rxe1)
	var files int
	until(t, looked(), func() bool { // resources of the last session are released
		files = s.rdmaFiles()
		time.Sleep(time.Second)
		return s.rdmaFiles() == files
	}, func() string {
		return fmt.Sprintf("the server's RDMA files come and go without a session: %s", s.process)
	})

	s.deviceGoes(rxe0, rxe1)
	rxe0.add(t)
	s.serving(2, rxe0, "10.7.0.1")
	s.by(rxe0)

	command(t, "ip", "link", "set", rxe0.netdev, "down")
	s.stopped(1, rxe0, "no port is active")
	command(t, "ip", "link", "set", rxe0.netdev, "up")
	s.serving(3, rxe0, "10.7.0.1")
	s.by(rxe0)

	s.addressChanges(rxe0)
	until(t, looked(), func() bool { return s.rdmaFiles() <= files }, func() string {
		list, _ := exec.Command("ls", "-l", fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)).CombinedOutput()
		return fmt.Sprintf("the server has %d RDMA files open, and had %d: %s\n%s", s.rdmaFiles(), files, s.process, list)
	})

	rxe1.del(t)
	s.stopped(1, rxe1, isGone)
	command(t, "ip", "link", "set", rxe0.netdev, "down")
	s.stopped(2, rxe0, "no port is active")
	s.copyBy("tcp", "no port is active")
	command(t, "ip", "link", "set", rxe0.netdev, "up")
	s.serving(5, rxe0, "10.7.0.1")
	s.copyBy(rxe0.name, "")
	s.stop()
	for line, want := range map[string]int{"no longer serving": 6, "on verbs " + rxe0.name: 11, "on verbs " + rxe1.name: 2, "listener": 0} {
		if n := strings.Count(s.stderr.String(), line); n != want {
			t.Errorf("the server wrote %q %d times, want %d: %s", line, n, want, s.process)
		}
	}
}

// deviceGoes removes a device during a copy over another. The kernel waits for everyone
// who has a Soft-RoCE device open, and a client has all devices open.
func (s *railTest) deviceGoes(gone, other softRail) {
	s.t.Helper()
	under := hold(s.t, 1, "--remote-rail", other.name, s.url("held"))
	if by := under.connected(); by != other.name {
		s.t.Errorf("it copies by %s, want %s: %s", by, other.name, under)
	}
	removed := make(chan error, 1)
	go func() { removed <- exec.Command("rdma", "link", "del", gone.name).Run() }()
	s.stopped(1, gone, isGone)
	run(s.t, how{}, "--remote-rail", gone.name, s.here+"/file", s.url("none")).wantFailure(5, gone.name)
	under.send(2)
	under.finish(s.there + "/held")
	select {
	case err := <-removed:
		must(s.t, err)
	case <-time.After(looked()):
		s.t.Fatalf("the server keeps the device: %s", s.process)
	}
}

// addressChanges gives a device's port another address, and then the former one again.
func (s *railTest) addressChanges(r softRail) {
	s.t.Helper()
	const first, second = "10.7.0.1", "10.7.0.9"
	change := func(what, addr string) {
		prefix := map[string]string{first: "/24", second: "/32"}[addr]
		command(s.t, "ip", "addr", what, addr+prefix, "dev", r.netdev)
	}
	s.t.Cleanup(func() {
		for _, undo := range []string{"add " + first + "/24", "del " + second + "/32"} {
			_ = exec.Command("ip", append(append([]string{"addr"}, strings.Fields(undo)...), "dev", r.netdev)...).Run() // it may already be so
		}
	})
	change("add", second)
	s.serving(1, r, second)
	change("del", first)
	s.stopped(1, r, "no longer has this address")
	s.by(r)
	change("add", first)
	s.serving(4, r, first)
	change("del", second)
	s.stopped(2, r, "no longer has this address")
	s.by(r)
}

// TestSessionsSpreadOverEqualRails runs eight clients concurrently with a server with
// eight devices of the same rate: each gets its own device.
func TestSessionsSpreadOverEqualRails(t *testing.T) {
	needRDMA(t)
	onlyInFull(t)
	ownGuest(t, "makes network interfaces and devices")
	const rails = 8
	wires := make([]softRail, rails)
	for i := range wires {
		r := softRail{fmt.Sprint("eq", i), "rxe", fmt.Sprint("q", i)}
		wires[i] = r
		command(t, "ip", "link", "add", r.netdev, "type", "veth", "peer", "name", r.netdev+"p")
		t.Cleanup(func() { command(t, "ip", "link", "del", r.netdev) })
		for _, end := range []string{r.netdev, r.netdev + "p"} {
			command(t, "ip", "link", "set", end, "up", "mtu", "4200")
		}
		command(t, "ip", "addr", "add", fmt.Sprintf("10.7%d.0.1/24", i), "dev", r.netdev)
	}
	withoutRails(t)
	for _, r := range wires {
		r.add(t)
	}
	s := newSides(t, tcpLink(), "--listen", "0.0.0.0:0")
	for i, r := range wires {
		s.waitLog(1, fmt.Sprintf(`^gdrcp: serving \S+ on verbs %s 10\.7%d\.0\.1:\d+$`, r.name, i))
	}
	var copies []*held
	for i := range rails {
		copies = append(copies, hold(t, uint64(i), "--require", "verbs", s.url(fmt.Sprint("copy", i))))
	}
	of := map[string]int{}
	for _, c := range copies {
		of[c.connected()]++
	}
	for _, r := range wires {
		if of[r.name] != 1 {
			t.Errorf("of %d copies at once %d go by %s, want one: %v", rails, of[r.name], r.name, of)
		}
	}
	for i, c := range copies {
		c.send(uint64(rails + i))
		c.finish(fmt.Sprint(s.there, "/copy", i))
	}
	s.stop()
}
