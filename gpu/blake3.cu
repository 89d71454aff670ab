/*
 * Computes BLAKE3 of many pieces of memory in parallel. The script ptx compiles
 * this source to blake3.ptx for the GPU. Compiled as C for the processor, it is
 * also what the tests' fake driver runs (fakecuda/kernels.c).
 *
 * A job is a subtree of some file's BLAKE3 tree, of any length: its leaves are
 * chunks of 1024 bytes, and the nodes over them result from pairing neighbours
 * level by level; the last one of an odd number is passed up unchanged. That is
 * the tree of the BLAKE3 paper (section 2.1), in which the left side is full.
 *
 * The chunks of all jobs are numbered consecutively. 128 in a row form a tile,
 * which one thread block hashes, one chunk per thread: so a launch is as
 * balanced for a thousand small files as for one large one, and only the last
 * tile has idle threads. If a tile has several jobs, or begins within one, no
 * node of a tree need begin with it. A node whose chunks lie in one tile is
 * computed by gdr_blake3_tiles, any other by gdr_blake3_join, which is launched
 * for the jobs that extend over several tiles. The parent of two nodes is
 * stored in the place of the left one.
 *
 * Expected speed, calculated and not measured. A compression is 7 rounds of 8
 * mixes of 12 instructions, 672. With loads and moves these become 726 in the
 * output of ptxas 11.8 for compute capability 9.0: 580 for the integer lanes,
 * of which a multiprocessor has 64 (CUDA C++ Programming Guide, throughput of
 * native arithmetic instructions), and the other adds and moves for the
 * multipliers beside them. That is 64*64/580 = 7 bytes a clock, and with 132
 * multiprocessors at 1.7 GHz 1.6 TB/s. Joining the chunks of a tile takes 8
 * warp-wide compressions in addition to the 64 of its leaves, an eighth more.
 * It uses 64 registers, so 8 blocks fit a multiprocessor. 64 MiB are 512
 * blocks, 4 to each: one warp of each on every scheduler, with four independent
 * mixes at any time, which is enough to hide the latency of instructions. So
 * they take some 50 us, with two launches and one small copy less than 100:
 * above 600 GB/s. Memory bandwidth (4.8 TB/s on an H200) is far from exhausted.
 *
 * Each thread reads its own chunk, 64 bytes at a time, so the lanes of a warp
 * read 1 KiB apart. That takes every sector of 32 bytes once and whole, by four
 * consecutive loads of 16 bytes: meanwhile a block occupies 128 lines of the
 * first-level cache, 16 KiB. Even if the cache serves only one lane's line per
 * clock, it delivers 16 bytes per clock, twice what the arithmetic consumes.
 * Staging through shared memory would make the reads contiguous, at the cost of
 * two barriers and some 12 more instructions for each 64 bytes: that pays off
 * only if memory is the bottleneck. Instead each thread loads its next block
 * before it compresses the current one.
 */

#include "blake3.h"

enum {
	TILE_CHUNKS = THREADS,
	TILE_LEVELS = 7, /* of the tree over a tile */
};

/* A line of the job table, as hashtable.go writes it. */
struct job {
	uint64 data; /* address, a multiple of 64; not used without bytes */
	uint64 bytes;
	uint64 counter; /* of its first chunk in the file */
	uint32 first;   /* of its chunks among those of all jobs */
	uint32 root;    /* ROOT or 0 */
};

FUNCTION uint32 chunks_of(const struct job *job)
{
	return job->bytes ? (job->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES : 1;
}

/* Loads the next block of a chunk that has left bytes left, at least one. The
 * whole block is read, which is within the allocation because it is an aligned
 * part of it, and the bytes after the end are set to zero. */
FUNCTION struct block load(const struct block GLOBAL *data, uint32 left)
{
	struct block m;

	for (int i = 0; i < 4; i++) {
		const quad q = ((const quad GLOBAL *)data)[i];

		for (int k = 0; k < 4; k++)
			m.word[4 * i + k] = q[k];
	}
	if (left < BLOCK_BYTES) {
		UNROLLED
		for (uint32 i = 0; i < 16; i++) {
			if (left <= 4 * i)
				m.word[i] = 0;
			else if (left < 4 * i + 4)
				m.word[i] &= (1u << 8 * (left - 4 * i)) - 1;
		}
	}
	return m;
}

/* Chaining value of chunk number index of a job. */
FUNCTION struct cv hash_chunk(const struct job *job, uint32 index)
{
	const uint64 start = (uint64)index * CHUNK_BYTES;
	const uint32 last = CHUNK_END | (job->bytes <= CHUNK_BYTES ? job->root : 0);
	const uint64 left_of_job = job->bytes - start;
	uint32 left = left_of_job < CHUNK_BYTES ? (uint32)left_of_job : CHUNK_BYTES;
	uint32 flags = CHUNK_START;
	struct cv cv = initial();
	const struct block GLOBAL *data = 0;
	struct block next = {{0}};

	if (left) {
		data = (const struct block GLOBAL *)at_address(job->data + start);
		next = load(data, left);
	}
	for (;;) {
		const struct block m = next;
		const uint32 bytes = smaller(left, BLOCK_BYTES);

		left -= bytes;
		if (left)
			next = load(++data, left);
		else
			flags |= last;
		cv = compress(cv, m, job->counter + index, bytes, flags);
		if (!left)
			return cv;
		flags = 0;
	}
}

/* The job that a chunk among those of all jobs belongs to. */
FUNCTION uint32 find_job(const struct job *jobs, uint32 job_count, uint32 chunk)
{
	uint32 low = 0, high = job_count;

	while (high - low > 1) {
		uint32 middle = low + (high - low) / 2;

		if (jobs[middle].first <= chunk)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The data that the threads of a block share. Entry t of the first four arrays
 * is about chunk t of the tile, and later about the node that begins with it. */
struct tile {
	uint32 word[8][TILE_CHUNKS]; /* of the chaining value: neighbours in neighbouring banks */
	uint32 job[TILE_CHUNKS];     /* number of the job */
	uint32 index[TILE_CHUNKS];   /* of the chunk within its job */
	uint32 chunks[TILE_CHUNKS];  /* of the job; 0 if there is no chunk */
	uint32 left[TILE_CHUNKS / 2];      /* a level's pairs, by where they begin, in any order */
	uint32 pairs[TILE_LEVELS];         /* how many */
};

FUNCTION void put(struct tile *tile, uint32 t, struct cv cv)
{
	for (int i = 0; i < 8; i++)
		tile->word[i][t] = cv.word[i];
}

FUNCTION struct cv get(const struct tile *tile, uint32 t)
{
	struct cv cv;

	for (int i = 0; i < 8; i++)
		cv.word[i] = tile->word[i][t];
	return cv;
}

/* Whether a pair of nodes, the left one over span chunks, begins with chunk t
 * and lies in the tile. */
FUNCTION int begins_pair(const struct tile *tile, uint32 t, uint32 span)
{
	const uint32 index = tile->index[t], chunks = tile->chunks[t];

	return index % (2 * span) == 0 && index + span < chunks &&
	       t + smaller(2 * span, chunks - index) <= TILE_CHUNKS;
}

/* The work of one block of gdr_blake3_tiles: the digests of jobs that lie
 * within the tile, and for the others the chaining values of the nodes that do. */
FUNCTION void hash_tile(uint32 number, const struct job *jobs, uint32 job_count, uint32 chunk_count,
			struct cv *cvs, struct cv *digests, struct tile *tile)
{
	const uint32 first = number * TILE_CHUNKS;

	EACH_THREAD(number, t) {
		if (t < TILE_LEVELS)
			tile->pairs[t] = 0;
		tile->index[t] = tile->chunks[t] = 0;
		if (first + t < chunk_count) {
			const uint32 j = find_job(jobs, job_count, first + t);
			const uint32 index = first + t - jobs[j].first;

			tile->job[t] = j;
			tile->index[t] = index;
			tile->chunks[t] = chunks_of(&jobs[j]);
			put(tile, t, hash_chunk(&jobs[j], index));
		}
	}
	for (uint32 level = 0; level < TILE_LEVELS; level++) {
		const uint32 span = 1u << level;

		/* Pairs may begin anywhere: they are gathered, so that as few
		 * warps as possible have work. */
		EACH_THREAD(number, t)
			if (begins_pair(tile, t, span))
				tile->left[__atomic_fetch_add(&tile->pairs[level], 1, __ATOMIC_RELAXED)] = t;
		EACH_THREAD(number, t)
			if (t < tile->pairs[level]) {
				const uint32 at = tile->left[t];
				const int top = tile->index[at] == 0 && tile->chunks[at] <= 2 * span;

				put(tile, at, parent(get(tile, at), get(tile, at + span),
						     top ? jobs[tile->job[at]].root : 0));
			}
	}
	EACH_THREAD(number, t) {
		const uint32 index = tile->index[t], chunks = tile->chunks[t];

		if (!chunks)
			continue;
		if (index <= t && t - index + chunks <= TILE_CHUNKS) {
			if (index == 0)
				write_cv(&digests[tile->job[t]], get(tile, t));
		} else {
			write_cv(&cvs[first + t], get(tile, t));
		}
	}
}

/* Returns the first chunk of the k-th of a job's pairs of nodes, the left one
 * over span chunks, that may extend over several tiles: the pair over the k-th
 * border between tiles as long as a pair is no larger than a tile, then every
 * pair. */
FUNCTION uint32 kth_pair(const struct job *job, uint32 span, uint32 k)
{
	if (span >= TILE_CHUNKS)
		return k * 2 * span;
	return ((job->first / TILE_CHUNKS + 1 + k) * TILE_CHUNKS - job->first) & ~(2 * span - 1);
}

/* Returns the number of these pairs. */
FUNCTION uint32 pairs_to_join(const struct job *job, uint32 span, uint32 chunks)
{
	if (span >= TILE_CHUNKS)
		return (chunks - 1) / (2 * span) + 1;
	return (job->first + chunks - 1) / TILE_CHUNKS - job->first / TILE_CHUNKS;
}

/* The work of one block of gdr_blake3_join: the digest of a job that extends
 * over several tiles, from the nodes that hash_tile computed. cvs has all of
 * these. */
FUNCTION void join_tiles(uint32 number, const struct job *job, struct cv *cvs, struct cv *digest)
{
	const uint32 chunks = chunks_of(job);

	cvs += job->first;
	for (uint32 span = 1; span < chunks; span *= 2) {
		const uint32 pairs = pairs_to_join(job, span, chunks);

		EACH_THREAD(number, t)
			for (uint32 k = t; k < pairs; k += THREADS) {
				const uint32 left = kth_pair(job, span, k);
				const uint32 end = left + smaller(2 * span, chunks - left);

				if (left + span < end &&
				    (job->first + left) / TILE_CHUNKS != (job->first + end - 1) / TILE_CHUNKS)
					write_cv(&cvs[left],
						 parent(read_cv(&cvs[left]), read_cv(&cvs[left + span]),
							2 * span < chunks ? 0 : job->root));
			}
	}
	EACH_THREAD(number, t)
		if (t == 0)
			write_cv(digest, read_cv(&cvs[0]));
}

#ifdef __CUDA_ARCH__

/* One block for each tile. cvs has room for chunk_count. */
KERNEL gdr_blake3_tiles(const struct job *jobs, uint32 job_count, uint32 chunk_count, struct cv *cvs,
			struct cv *digests)
{
	__attribute__((shared)) static struct tile tile;

	hash_tile(__nvvm_read_ptx_sreg_ctaid_x(), jobs, job_count, chunk_count, cvs, digests, &tile);
}

/* One block for each entry of wide, the numbers of the jobs that extend over
 * several tiles. */
KERNEL gdr_blake3_join(const struct job *jobs, const uint32 *wide, struct cv *cvs, struct cv *digests)
{
	const uint32 number = __nvvm_read_ptx_sreg_ctaid_x(), j = wide[number];

	join_tiles(number, &jobs[j], cvs, &digests[j]);
}

#endif
