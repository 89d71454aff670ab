// Package gpu copies by way of a GPU's memory, with the real binary as two
// processes over TCP on one machine: every copy is compared, and what staging
// costs is measured against slots in host memory. Its test binary needs the
// program and nothing else: no Go, no network.
//
//	GDRCP_BINARY        the program; without it one is built
//	GDRCP_REQUIRE=gpu   a test that misses a GPU fails and does not skip
//	GDRCP_GPU_BENCH_MIB what a benchmark copies at a time (8192, or what there is
//	                    room for twice; of a fake GPU 256)
//	TMPDIR              where to, instead of /dev/shm
//	GDRCP_LIBCUDA       another driver, such as the fake, as for the program
package gpu
