package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gdrcp/gpu/gputest"
	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// TestMain sets these.
var (
	// binary is the program under test.
	binary string
	// fakeCUDA builds the fake libcuda once and returns its file, or "" if the program
	// was built without GPUs.
	fakeCUDA func() (string, error)
	// keyFiles are files with the key that both ends share, by the user who can read
	// them: 0 is the tests' user.
	keyFiles = make(map[uint32]string)
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	launch.InMemory()
	dir, err := os.MkdirTemp("", "gdrcp-program-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // other users run it, too
	}
	if err == nil {
		keyFiles[0], keyFiles[nobody] = filepath.Join(dir, "key"), filepath.Join(dir, "nobodys-key")
		err = makeKeys(keyFiles)
	}
	if err == nil {
		fakeCUDA = sync.OnceValues(func() (string, error) { return buildFakeCUDA(dir) })
		binary, err = launch.Program(dir)
	}
	if err == nil {
		err = rdmatest.AtOnce(12)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// makeKeys writes one key to a file for each user, so that ends that use these files
// can connect.
func makeKeys(files map[uint32]string) error {
	key, err := trust.NewKey("test")
	for uid, file := range files {
		if err == nil {
			err = key.WriteFile(file)
		}
		if err == nil && uid != 0 && os.Getuid() == 0 {
			err = os.Chown(file, int(uid), int(uid))
		}
	}
	return err
}

func buildFakeCUDA(dir string) (string, error) {
	out, _ := exec.Command(binary, "devices", "--json").Output() // fails if there is no RDMA device
	if noGPUs.Match(out) {
		return "", nil
	}
	return gputest.Build(dir)
}

// noGPUs matches the output of a program that was built without GPUs.
var noGPUs = regexp.MustCompile(`"event":"no_gpu".*"reason":"not-built"`)

// full reports whether to use the full counts and sizes.
func full() bool { return os.Getenv("GDRCP_TEST_FULL") == "1" }

// link is a connection between client and server.
type link struct {
	name      string // "tcp" or a device
	transport string
	host      string
}

// serveArgs returns options of a server that choose the link. copyArgs does so for a
// copy.
func (l link) serveArgs() []string {
	if l.transport == "verbs" {
		return []string{"--listen", "0.0.0.0:0", "--transport", "auto"}
	}
	return nil
}

func (l link) copyArgs() []string {
	// A disturbed copy must end, unless the test says otherwise.
	return []string{"--transport", l.transport, "--retries", "0"}
}

// rdmaLinks returns the devices that the environment names.
func rdmaLinks() []link {
	var links []link
	for _, pair := range strings.Split(os.Getenv("GDRCP_TEST_RDMA"), ",") {
		if device, address, ok := strings.Cut(pair, "="); ok {
			links = append(links, link{device, "verbs", address})
		}
	}
	return links
}

// everyLink runs a test over TCP or, if there are RDMA devices, over each of them, but
// then only if the seed's sample includes the test.
func everyLink(t *testing.T, test func(t *testing.T, l link)) {
	rdmatest.SampleOverDevices(t)
	links := rdmaLinks()
	if len(links) == 0 {
		links = []link{tcpLink()}
	}
	for _, l := range links {
		t.Run(l.name, func(t *testing.T) { test(t, l) })
	}
}

// sampledOut reports whether a combination is left to full runs, because copies over an
// emulated device are slow.
func sampledOut(l link, d direction) bool {
	return l.transport == "verbs" && !full() && d.push == (l.name == "siw0")
}

func tcpLink() link { return link{"tcp", "tcp", "127.0.0.1"} }

// onHost skips a test to which the emulated machine adds nothing.
func onHost(t *testing.T) {
	t.Helper()
	if len(rdmaLinks()) > 0 {
		t.Skip("has nothing to do with RDMA devices: run on the host")
	}
}

// needRDMA skips a test that is about RDMA devices if none is named.
func needRDMA(t *testing.T) []link {
	t.Helper()
	links := rdmaLinks()
	if len(links) == 0 {
		if slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "rdma") {
			t.Fatal("GDRCP_TEST_RDMA names no device")
		}
		t.Skip("GDRCP_TEST_RDMA names no device: run tests/bed/run-tests")
	}
	return links
}

// asRoot skips a test that needs to mount or to change its user, unless root runs it.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
}
