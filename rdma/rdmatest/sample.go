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

// PickDevice returns over which of n emulated devices a test runs: copies take their time
// there. With a Seed, half of the tests are skipped; another seed picks others, and other
// devices.
func PickDevice(t testing.TB, n int) int {
	t.Helper()
	SampleOverDevices(t)
	return int(crc32.ChecksumIEEE([]byte(t.Name()+os.Getenv(Seed))) >> 1 % uint32(n))
}

// SampleOverDevices skips a test that takes long over emulated devices, which are there if
// GDRCP_TEST_RDMA names some, unless the test is in the sample of the Seed.
func SampleOverDevices(t testing.TB) {
	t.Helper()
	if os.Getenv("GDRCP_TEST_RDMA") != "" && os.Getenv(Seed) != "" && !InSample(t.Name()) {
		t.Skip("is for another seed: " + Seed + " picks half of the tests, GDRCP_TEST_FULL=1 runs all")
	}
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
