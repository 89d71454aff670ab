/* The kernels that modules loaded into the fake may have: gpu/blake3.cu,
 * compiled for the processor; the blocks of a launch run one after another. */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

#include "../blake3.cu"

static const void *at_address(uint64 address)
{
	return fake_ptr(address);
}

static uint64 arg64(void **args, int i) { return *(const uint64 *)args[i]; }
static uint32 arg32(void **args, int i) { return *(const uint32 *)args[i]; }

static void run_tiles(unsigned grid, unsigned block, void **args)
{
	const struct job *jobs = fake_ptr(arg64(args, 0));
	struct cv *cvs = fake_ptr(arg64(args, 3)), *digests = fake_ptr(arg64(args, 4));
	struct tile tile;

	if (block != THREADS)
		abort();
	for (unsigned i = 0; i < grid; i++) {
		memset(&tile, 0xA5, sizeof tile);
		hash_tile(i, jobs, arg32(args, 1), arg32(args, 2), cvs, digests, &tile);
	}
}

static void run_join(unsigned grid, unsigned block, void **args)
{
	const struct job *jobs = fake_ptr(arg64(args, 0));
	const uint32 *wide = fake_ptr(arg64(args, 1));
	struct cv *cvs = fake_ptr(arg64(args, 2)), *digests = fake_ptr(arg64(args, 3));

	if (block != THREADS)
		abort();
	for (unsigned i = 0; i < grid; i++)
		join_tiles(i, &jobs[wide[i]], cvs, &digests[wide[i]]);
}

const struct fake_kernel fake_kernels[] = {
	{ "gdr_blake3_tiles", 5, run_tiles },
	{ "gdr_blake3_join", 4, run_join },
	{ NULL, 0, NULL },
};
