package rdmatest

import (
	"hash/crc32"
	"os"
	"testing"
)

// Seed names the environment variable that picks the sample of cases to run.
const Seed = "GDRCP_TEST_SEED"

// InSample reports whether a case is in the sample of the Seed. A sample has about half
// of all cases; another seed picks another half, and GDRCP_TEST_FULL=1 picks all.
func InSample(name string) bool {
	return os.Getenv("GDRCP_TEST_FULL") == "1" || crc32.ChecksumIEEE([]byte(os.Getenv(Seed)+name))%2 == 1
}

// Picked reports whether a case of the test is to run: with -short, as under the race
// detector, only the cases in the sample; otherwise all.
func Picked(t testing.TB, name string) bool { return !testing.Short() || InSample(t.Name()+name) }

// SkipUnlessPicked skips a subtest whose case is not Picked.
func SkipUnlessPicked(t testing.TB) {
	t.Helper()
	if !Picked(t, "") {
		t.Skip("is not in the sample of " + Seed + ": run it without -short")
	}
}
