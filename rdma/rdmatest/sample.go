package rdmatest

import (
	"hash/crc32"
	"os"
	"testing"
)

// Seed names the environment variable that picks the cases of long suites: about half
// of them, others with another seed.
const Seed = "GDRCP_TEST_SEED"

// Picked reports whether a case of the test is to run. All are where Seed is not set
// and the run is not -short, as under the race detector, and where
// GDRCP_TEST_FULL=1 wants all; otherwise the seed picks about half of them.
func Picked(t testing.TB, name string) bool {
	seed := os.Getenv(Seed)
	if os.Getenv("GDRCP_TEST_FULL") == "1" || seed == "" && !testing.Short() {
		return true
	}
	return crc32.ChecksumIEEE([]byte(seed+t.Name()+name))%2 == 1
}

// SkipUnlessPicked ends a subtest that is a case which is not Picked.
func SkipUnlessPicked(t testing.TB) {
	t.Helper()
	if !Picked(t, "") {
		t.Skip("is for another seed: " + Seed + " picks half of the cases, GDRCP_TEST_FULL=1 runs all")
	}
}
