package rdmatest

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// AtOnce lets n parallel tests of a package run concurrently. It is for
// packages whose tests mostly wait: waiting needs no processor. It parses the
// flags, and -parallel overrides it.
func AtOnce(n int) error {
	flag.Parse()
	atOnce := flag.Lookup("test.parallel").Value
	if atOnce.String() != strconv.Itoa(runtime.GOMAXPROCS(0)) {
		return nil
	}
	return atOnce.Set(strconv.Itoa(n))
}

// BesideOthers lets a test that mostly waits run in parallel with others,
// unless GDRCP_TEST_RDMA names devices: a copy over an emulated device needs
// the processors to itself.
func BesideOthers(t *testing.T) {
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Parallel()
	}
}
