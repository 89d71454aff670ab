package rdmatest

import (
	"hash/crc32"
	"os"
	"testing"
)

// Seed names the environment variable that selects the sample of cases to run.
const Seed = "GDRCP_TEST_SEED"

// InSample reports whether a case is in the sample that the Seed selects. A
// sample has about half of all cases; another seed selects another half, and
// GDRCP_TEST_FULL=1 selects all.
func InSample(name string) bool {
	return os.Getenv("GDRCP_TEST_FULL") == "1" || crc32.ChecksumIEEE([]byte(os.Getenv(Seed)+name))%2 == 1
}

// PickDevice returns which of n emulated devices a test uses, because copies
// over them are slow. With a Seed, half of the tests are skipped; another seed
// selects other tests and devices.
func PickDevice(t testing.TB, n int) int {
	t.Helper()
	SampleOverDevices(t)
	return int(crc32.ChecksumIEEE([]byte(t.Name()+os.Getenv(Seed))) >> 1 % uint32(n))
}

// SampleOverDevices skips a test that takes long over emulated devices
// (GDRCP_TEST_RDMA names some), unless the test is in the sample of the Seed.
func SampleOverDevices(t testing.TB) {
	t.Helper()
	if os.Getenv("GDRCP_TEST_RDMA") != "" && os.Getenv(Seed) != "" && !InSample(t.Name()) {
		t.Skip("is for another seed: " + Seed + " picks half of the tests, GDRCP_TEST_FULL=1 runs all")
	}
}

// Picked reports whether to run a case of the test: with -short, which the race
// detector's runs use, only the cases in the sample; otherwise all.
func Picked(t testing.TB, name string) bool { return !testing.Short() || InSample(t.Name()+name) }

// SkipUnlessPicked skips a subtest whose case is not Picked.
func SkipUnlessPicked(t testing.TB) {
	t.Helper()
	if !Picked(t, "") {
		t.Skip("is not in the sample of " + Seed + ": run it without -short")
	}
}
