package rdmatest

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// AtOnce lets n parallel tests of a package run at once, for one in which most
// of them wait: waiting needs no processor. It parses the flags, and -parallel
// overrides it.
func AtOnce(n int) error {
	flag.Parse()
	atOnce := flag.Lookup("test.parallel").Value
	if atOnce.String() != strconv.Itoa(runtime.GOMAXPROCS(0)) {
		return nil
	}
	return atOnce.Set(strconv.Itoa(n))
}

// BesideOthers lets a test that mostly waits run at the same time as others; but
// not where GDRCP_TEST_RDMA names devices: over an emulated one a copy needs the
// processors to itself.
func BesideOthers(t *testing.T) {
	if os.Getenv("GDRCP_TEST_RDMA") == "" {
		t.Parallel()
	}
}
