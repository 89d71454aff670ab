package rdmatest

import (
	"flag"
	"runtime"
	"strconv"
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
