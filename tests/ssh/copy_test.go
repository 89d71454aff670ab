package ssh

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

func TestPushAndPull(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	tree, there := filepath.Join(here.dir, "tree"), t.TempDir()
	makeTree(t, tree)
	r := here.run(t, "-r", "-l", "-p", "-t", "tree", "node2:"+there).want(t, 0)
	same(t, tree, filepath.Join(there, "tree"))
	if strings.Contains(r.err, "over ssh") {
		t.Errorf("the data went through ssh: %s", r.err)
	}
	here.run(t, "-r", "-l", "-p", "-t", "node2:"+there+"/tree", "back").want(t, 0)
	same(t, tree, filepath.Join(here.dir, "back"))
	here.run(t, "tree/large", "tree/deep/er/small", "node2:"+there+"/").want(t, 0)
	same(t, tree+"/large", there+"/large")
	same(t, tree+"/deep/er/small", there+"/small")
	here.run(t, "node2:"+there+"/missing", "x").want(t, 1)
	here.run(t, "tree/large", "node2:"+there+"/no/such/directory/").want(t, 1)
}

// TestComparing: the remote process receives the options that decide what is sent
// again, in both directions.
func TestComparing(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	there := t.TempDir()
	from, to := filepath.Join(here.dir, "f"), filepath.Join(there, "f")
	makeFile(t, from, 3<<20)
	for _, way := range [][]string{{"f", "node2:" + there + "/f"}, {"node2:" + from, to}} {
		for _, how := range []struct {
			options []string
			spoil   func() error
			sent    string
		}{
			{[]string{"--checksum"}, func() error { return os.Truncate(to, 2<<20) }, "3145728"},
			{[]string{"--checksum"}, func() error { return nil }, "0"},
			{[]string{"--append-verify"}, func() error { return os.Truncate(to, 2<<20) }, "1048576"},
			{[]string{"--append-verify", "--inplace"}, func() error { return os.Truncate(to, 1<<20) }, "2097152"},
		} {
			if _, err := os.Lstat(to); err != nil {
				makeFile(t, to, 3<<20)
			}
			if err := how.spoil(); err != nil {
				t.Fatal(err)
			}
			r := here.run(t, append(append(how.options, "--json"), way...)...).want(t, 0)
			if want := `"sent_bytes":` + how.sent + ","; !strings.Contains(r.out, want) {
				t.Errorf("%q: no %s in %s", how.options, want, r.out)
			}
			same(t, from, to)
		}
	}
}

// TestEvents: the data is not carried to an address of ssh.
func TestEvents(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	makeFile(t, filepath.Join(here.dir, "f"), 1000)
	r := here.run(t, "--json", "f", "node2:"+t.TempDir()+"/f").want(t, 0)
	var connected struct{ Event, Transport, Remote, Device string }
	if err := json.Unmarshal([]byte(strings.Split(r.out, "\n")[0]), &connected); err != nil {
		t.Fatal(err)
	}
	if connected.Event != "connected" || connected.Transport == "" || connected.Device == "ssh" || strings.HasPrefix(connected.Remote, "192.0.0.8") {
		t.Errorf("%+v", connected)
	}
}

// TestNames: no shell interprets a path.
func TestNames(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	there := t.TempDir()
	for _, name := range []string{"a b", `it's`, `q"u`, "new\nline", "$(touch x)", "`id`", "a;b", "back\\slash", "*", "[x]", "-r", "ü", "a:b", "not\xffUTF-8", "not\xff*"} {
		makeFile(t, filepath.Join(here.dir, "f"), len(name)+10)
		here.run(t, "f", "node2:"+there+"/"+name).want(t, 0)
		same(t, filepath.Join(here.dir, "f"), filepath.Join(there, name))
		here.run(t, "node2:"+there+"/"+name, "back").want(t, 0)
		same(t, filepath.Join(here.dir, "f"), filepath.Join(here.dir, "back"))
	}
	if _, err := os.Lstat(filepath.Join(there, "x")); err == nil {
		t.Error("a shell has evaluated a name")
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	there := t.TempDir()
	for _, name := range []string{"a.bin", "b.bin", ".c.bin", "d.txt", "sub/e.bin"} {
		makeFile(t, filepath.Join(there, name), 100)
	}
	into := filepath.Join(here.dir, "into")
	if err := os.Mkdir(into, 0o755); err != nil {
		t.Fatal(err)
	}
	here.run(t, "node2:"+there+"/*.bin", "node2:"+there+"/*/e.bin", into+"/").want(t, 0)
	entries, err := os.ReadDir(into)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "a.bin b.bin e.bin" {
		t.Errorf("copied %s", got)
	}
	here.run(t, "node2:"+there+"/*.none", into).want(t, 1).says(t, "*.none")
	for i := range 200 { // too many for one request
		makeFile(t, filepath.Join(there, fmt.Sprintf("many-%0100d", i)), 1)
	}
	r := here.run(t, "node2:"+there+"/many-*", into).want(t, 2).says(t, "many-*\": it matches more names than one copy takes")
	if lines := r.ours(); len(lines) != 1 {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

// TestWherePathsBegin: relative paths begin in the shell's directory, ~ in the home
// directory.
func TestWherePathsBegin(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	there := t.TempDir()
	f := filepath.Join(here.dir, "f")
	makeFile(t, f, 1000)
	here.run(t, "--remote-path", "cd '"+there+"' && gdrcp", "f", "node2:sub").want(t, 0)
	same(t, f, filepath.Join(there, "sub"))
	here.run(t, "--remote-path", "cd '"+there+"' && gdrcp", "f", "node2:").want(t, 0)
	same(t, f, filepath.Join(there, "f"))
	here.run(t, "f", "node2:~/at home").want(t, 0)
	same(t, f, filepath.Join(far.home, "at home"))
	here.run(t, "node2:~/at*", "back").want(t, 0)
	same(t, f, filepath.Join(here.dir, "back"))
	// Links are followed as for local operands.
	if err := os.Symlink(there, filepath.Join(far.home, "link")); err != nil {
		t.Fatal(err)
	}
	here.run(t, "f", "node2:~/link/by-link").want(t, 0)
	same(t, f, filepath.Join(there, "by-link"))
}

// TestRsh: the option overrides the variable, and is split into words as in rsync.
func TestRsh(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	rsh := here.rsh
	here.rsh = "/no/such/ssh"
	makeFile(t, filepath.Join(here.dir, "f"), 1000)
	there := t.TempDir()
	here.run(t, "f", "node2:"+there+"/f").want(t, 1).says(t, "/no/such/ssh")
	here.run(t, "-e", rsh, "f", "node2:"+there+"/f").want(t, 0)
	here.run(t, "-e", rsh+" -o 'User=nobody-of-that-name'", "f", "root@node2:"+there+"/g").want(t, 1)
	same(t, filepath.Join(here.dir, "f"), there+"/f")
}

// cutOff installs the program in a network namespace that nobody can reach.
func cutOff(t *testing.T) func(*testing.T, string) {
	t.Helper()
	if out, err := exec.Command("unshare", "-n", "true").CombinedOutput(); err != nil {
		t.Skipf("cannot close all other ports: unshare -n: %v %s (needs root)", err, out)
	}
	return script(`exec unshare -n "$gdrcp" "$@"`)
}

func TestNoOtherPort(t *testing.T) {
	t.Parallel()
	far := newHost(t, "node2", cutOff(t))
	here := newClient(t, far)
	tree, there := filepath.Join(here.dir, "tree"), t.TempDir()
	makeTree(t, tree)
	r := here.run(t, "-r", "-l", "tree", "node2:"+there).want(t, 0).says(t, "gdrcp: using tcp over ssh: node2 has no other address\n")
	if !strings.Contains(r.err, ", tcp over ssh), verified\n") {
		t.Errorf("it wrote %s", r.err)
	}
	same(t, tree, filepath.Join(there, "tree"))
	here.run(t, "-r", "-l", "--qps", "4", "--transport", "tcp", "node2:"+there+"/tree", "back").want(t, 0).says(t, "over ssh")
	same(t, tree, filepath.Join(here.dir, "back"))
	here.run(t, "-r", "--require", "verbs", "tree", "node2:"+there+"/again").want(t, 5)
	here.run(t, "-r", "--transport", "verbs", "tree", "node2:"+there+"/again").want(t, 5).says(t, "node2 offers no RDMA address: no RDMA device there")
}

// strangeNetwork installs the program in a network namespace with nothing but loopback
// and an address with a choice of two ports. From here, that address leads to this
// host, although no interface has it.
func strangeNetwork(t *testing.T, firstPort int) (program func(*testing.T, string), addr string) {
	t.Helper()
	addr = fmt.Sprintf("198.18.%d.%d", firstPort>>8, firstPort&0xff) // RFC 2544: assigned to nobody
	prepare := fmt.Sprintf("ip link set lo up && ip address add %s dev lo && echo %d %d >/proc/sys/net/ipv4/ip_local_port_range", addr, firstPort, firstPort+1)
	if out, err := exec.Command("unshare", "-n", "sh", "-c", prepare).CombinedOutput(); err != nil {
		t.Skipf("cannot make a network whose ports are known: %v %s (needs root, and iproute2)", err, out)
	}
	route := []string{"add", "local", addr, "dev", "lo", "table", "local"}
	if out, err := exec.Command("ip", append([]string{"route"}, route...)...).CombinedOutput(); err != nil {
		t.Skipf("cannot lead an address here: %v %s", err, out)
	}
	t.Cleanup(func() {
		route[0] = "delete"
		if out, err := exec.Command("ip", append([]string{"route"}, route...)...).CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	})
	return script(`export gdrcp; exec unshare -n sh -c '` + prepare + ` && exec "$gdrcp" "$@"' sh "$@"`), addr
}

// TestAddressesOfSomebodyElse: from here, the addresses that the remote process offers
// lead to nobody or to a stranger.
func TestAddressesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	port := freePort(t) &^ 1 // it tries an even port first
	program, addr := strangeNetwork(t, port)
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	f, there := filepath.Join(here.dir, "f"), t.TempDir()
	makeFile(t, f, 3<<20)
	here.run(t, "f", "node2:"+there+"/f").want(t, 0).says(t, "gdrcp: using tcp over ssh: no other address of node2 reached: ")
	same(t, f, there+"/f")
	for p := port; p <= port+1; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", addr, p))
		if err != nil {
			t.Skipf("somebody else has the port: %v", err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("220 this is another service\r\n")) // the peer notices a failure
				c.Close()
			}
		}()
	}
	here.run(t, "node2:"+there+"/f", "back").want(t, 0).says(t, "gdrcp: using tcp over ssh: no other address of node2 reached: ").says(t, "does not speak gdrcp's protocol")
	same(t, f, filepath.Join(here.dir, "back"))
}

// TestAddressesOfAnotherServer: the stranger may also be a gdrcp with other keys.
func TestAddressesOfAnotherServer(t *testing.T) {
	t.Parallel()
	port := freePort(t) &^ 1
	program, addr := strangeNetwork(t, port)
	far := newHost(t, "node2", program)
	here := newClient(t, far)
	f, there := filepath.Join(here.dir, "f"), t.TempDir()
	makeFile(t, f, 3<<20)
	keygen := exec.Command(binary, "key", "new", "other")
	keygen.Dir = t.TempDir()
	if out, err := keygen.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for p := port; p <= port+1; p++ {
		serve := exec.Command(binary, "serve", "--root", t.TempDir(), "--key-file", filepath.Join(keygen.Dir, "other.key"), "--listen", fmt.Sprintf("%s:%d", addr, p))
		said := &launch.Output{}
		serve.Stderr = said
		if err := serve.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = serve.Process.Kill()
			_ = serve.Wait() // it was killed
		})
		for end := time.Now().Add(launch.Slow(10 * time.Second)); !strings.Contains(said.String(), "serving"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Skipf("somebody else has the port: %s", said)
			}
		}
	}
	here.run(t, "f", "node2:"+there+"/f").want(t, 0).says(t, "gdrcp: using tcp over ssh: no other address of node2 reached: ").says(t, "the key was refused")
	same(t, f, there+"/f")
}
