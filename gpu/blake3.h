/*
 * BLAKE3's compression function for one thread, on a GPU or on the processor,
 * and declarations for code that is compiled for both. It includes no header of
 * CUDA or of the system, so that its output depends on nothing else.
 */
#ifndef GDRCP_GPU_BLAKE3_H
#define GDRCP_GPU_BLAKE3_H

typedef __UINT32_TYPE__ uint32;
typedef __UINT64_TYPE__ uint64;

enum { BLOCK_BYTES = 64, CHUNK_BYTES = 1024 };

/* Threads in a thread block, for every kernel. */
enum { THREADS = 128 };

/* Flags of a compression (BLAKE3 paper, table 3). */
enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

/* EACH_THREAD(group, t) { ... } is a step of the thread block with that number,
 * for each of its threads t. No thread begins the next step before all have
 * ended this one. Leave such a block only by its end or by continue. On the
 * processor the threads take turns, in odd groups backwards: a step in which a
 * thread uses a result that another makes in the same step gives wrong digests
 * there.
 *
 * at_address is the memory at an address of the device. */
#ifdef __CUDA_ARCH__

#define FUNCTION static inline __attribute__((device, always_inline))
#define KERNEL extern "C" __attribute__((global, launch_bounds(THREADS))) void
#define GLOBAL __attribute__((address_space(1)))
#define UNROLLED _Pragma("unroll")
#define EACH_THREAD(group, t)                                                                      \
	for (uint32 t = ((void)(group), __nvvm_read_ptx_sreg_tid_x()), once = 1; once;             \
	     once = 0, __syncthreads())

FUNCTION const void GLOBAL *at_address(uint64 address)
{
	return (const void GLOBAL *)address;
}

/* The bytes of x at the selected places. ptxas turns this into one PRMT. */
FUNCTION uint32 rotate_16(uint32 x) { return __nvvm_prmt(x, x, 0x1032); }
FUNCTION uint32 rotate_8(uint32 x) { return __nvvm_prmt(x, x, 0x0321); }

#else

#define FUNCTION static inline
#define GLOBAL
#define UNROLLED
#define EACH_THREAD(group, t)                                                                      \
	for (uint32 turn = 0, t = (group) % 2 ? THREADS - 1 : 0; turn < THREADS;                   \
	     turn++, t = (group) % 2 ? THREADS - 1 - turn : turn)

static const void *at_address(uint64 address); /* defined by the including file */

FUNCTION uint32 rotate_16(uint32 x) { return x >> 16 | x << 16; }
FUNCTION uint32 rotate_8(uint32 x) { return x >> 8 | x << 24; }

#endif

FUNCTION uint32 rotate_12(uint32 x) { return x >> 12 | x << 20; }
FUNCTION uint32 rotate_7(uint32 x) { return x >> 7 | x << 25; }

FUNCTION uint32 smaller(uint32 a, uint32 b) { return a < b ? a : b; }

/* A chaining value, or a digest: words are little-endian, as GPUs are. */
struct cv {
	uint32 word[8];
} __attribute__((aligned(16)));

struct block {
	uint32 word[BLOCK_BYTES / 4];
} __attribute__((aligned(16)));

/* The largest access of a thread. Compilers do not merge four accesses into one
 * by themselves. */
typedef uint32 quad __attribute__((vector_size(16), may_alias));

FUNCTION struct cv read_cv(const struct cv *from)
{
	const quad low = ((const quad *)from)[0], high = ((const quad *)from)[1];
	struct cv cv = {{low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]}};
	return cv;
}

FUNCTION void write_cv(struct cv *to, struct cv cv)
{
	const uint32 *w = cv.word;
	const quad low = {w[0], w[1], w[2], w[3]}, high = {w[4], w[5], w[6], w[7]};

	((quad *)to)[0] = low;
	((quad *)to)[1] = high;
}

FUNCTION void mix(uint32 *a, uint32 *b, uint32 *c, uint32 *d, uint32 x, uint32 y)
{
	*a += *b + x;
	*d = rotate_16(*d ^ *a);
	*c += *d;
	*b = rotate_12(*b ^ *c);
	*a += *b + y;
	*d = rotate_8(*d ^ *a);
	*c += *d;
	*b = rotate_7(*b ^ *c);
}

FUNCTION void mix_round(uint32 v[16], const struct block *m)
{
	const uint32 *w = m->word;

	mix(&v[0], &v[4], &v[8], &v[12], w[0], w[1]);
	mix(&v[1], &v[5], &v[9], &v[13], w[2], w[3]);
	mix(&v[2], &v[6], &v[10], &v[14], w[4], w[5]);
	mix(&v[3], &v[7], &v[11], &v[15], w[6], w[7]);
	mix(&v[0], &v[5], &v[10], &v[15], w[8], w[9]);
	mix(&v[1], &v[6], &v[11], &v[12], w[10], w[11]);
	mix(&v[2], &v[7], &v[8], &v[13], w[12], w[13]);
	mix(&v[3], &v[4], &v[9], &v[14], w[14], w[15]);
}

/* Costs nothing on the device: the words stay in their registers, and the next
 * round uses other names for them. */
FUNCTION struct block permuted(const struct block *m)
{
	const uint32 *w = m->word;
	struct block p = {{w[2], w[6], w[3], w[10], w[7], w[0], w[4], w[13], w[1], w[11], w[12],
			   w[5], w[9], w[14], w[15], w[8]}};
	return p;
}

FUNCTION struct cv initial(void)
{
	struct cv iv = {{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
			 0x1f83d9ab, 0x5be0cd19}};
	return iv;
}

/* BLAKE3's compression function, cut to a chaining value. */
FUNCTION struct cv compress(struct cv cv, struct block m, uint64 counter, uint32 bytes, uint32 flags)
{
	const struct cv iv = initial();
	uint32 v[16] = {cv.word[0], cv.word[1], cv.word[2], cv.word[3], cv.word[4], cv.word[5],
			cv.word[6], cv.word[7], iv.word[0], iv.word[1], iv.word[2], iv.word[3],
			(uint32)counter, (uint32)(counter >> 32), bytes, flags};

	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	m = permuted(&m);
	mix_round(v, &m);
	for (int i = 0; i < 8; i++)
		cv.word[i] = v[i] ^ v[i + 8];
	return cv;
}

/* Node over two others. */
FUNCTION struct cv parent(struct cv left, struct cv right, uint32 root)
{
	struct block both;

	for (int i = 0; i < 8; i++) {
		both.word[i] = left.word[i];
		both.word[i + 8] = right.word[i];
	}
	return compress(initial(), both, 0, BLOCK_BYTES, PARENT | root);
}

#endif
