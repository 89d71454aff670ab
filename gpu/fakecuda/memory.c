/* Device memory, and host memory that is registered. */
#define _GNU_SOURCE
#include "fake.h"

#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 2 << 20, PAGE = 4096, UNALIGNED = 64 << 10 };

static size_t round_up(size_t n, size_t to)
{
	return (n + to - 1) / to * to;
}

struct block *fake_block(struct context *ctx, uint64_t addr, size_t bytes)
{
	for (struct block *b = ctx->blocks; b; b = b->next)
		if (addr >= b->addr && addr - b->addr <= b->bytes && bytes <= b->bytes - (addr - b->addr))
			return b;
	return NULL;
}

static void unmap(struct block *b)
{
	if (b->reserved)
		munmap(b->reserved, b->reserved_bytes);
	if (b->shadow_reserved)
		munmap(b->shadow_reserved, b->shadow_bytes);
	if (b->memfd >= 0)
		close(b->memfd);
	free(b);
}

static void *reserve(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Maps the block's file twice: at its device address, which is a multiple of
 * ALIGN or UNALIGNED bytes after one, and for the fake, followed by a page that
 * nobody may access. */
static int map(struct block *b, size_t bytes)
{
	int prot = fake_modes.peermem && !fake_modes.bar1full ? PROT_READ | PROT_WRITE : PROT_NONE;
	uint64_t at;

	b->file_offset = fake_modes.unaligned ? UNALIGNED : 0;
	b->memfd = memfd_create("fake GPU memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (b->memfd < 0 || ftruncate(b->memfd, bytes) < 0 || fcntl(b->memfd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return -1;
	b->reserved_bytes = bytes + ALIGN;
	b->shadow_bytes = bytes + PAGE;
	b->reserved = reserve(b->reserved_bytes);
	b->shadow_reserved = reserve(b->shadow_bytes);
	if (!b->reserved || !b->shadow_reserved)
		return -1;
	at = round_up((uintptr_t)b->reserved, ALIGN);
	if (mmap((void *)at, bytes, prot, MAP_SHARED | MAP_FIXED, b->memfd, 0) == MAP_FAILED ||
	    mmap(b->shadow_reserved, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, b->memfd, 0) == MAP_FAILED)
		return -1;
	memset(b->shadow_reserved, 0xa5, bytes);
	b->addr = at + b->file_offset;
	b->shadow = (uint8_t *)b->shadow_reserved + b->file_offset;
	return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *addr, size_t bytes)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct block *b;

	if (!ctx)
		return rc;
	if (!bytes)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake_modes.oom || bytes > ((size_t)fake_modes.memory_mib << 20) - ctx->allocated)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	b = calloc(1, sizeof *b);
	if (!b)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	b->memfd = -1;
	b->bytes = bytes;
	if (map(b, round_up(bytes, ALIGN) + (fake_modes.unaligned ? ALIGN : 0)) < 0) {
		unmap(b);
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	b->next = ctx->blocks;
	ctx->blocks = b;
	ctx->allocated += bytes;
	*addr = b->addr;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuMemFree_v2(uint64_t addr)
{
	int rc;
	struct context *ctx = fake_enter_to_free(&rc);
	struct block **at, *b;

	if (!ctx)
		return rc;
	fake_drain(ctx);
	for (at = &ctx->blocks; (b = *at) && b->addr != addr; at = &b->next)
		;
	if (!b)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*at = b->next;
	ctx->allocated -= b->bytes;
	unmap(b);
	return fake_leave(rc);
}

EXPORT int cuPointerSetAttribute(const void *value, int attribute, uint64_t addr)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct block *b;

	if (!ctx)
		return rc;
	b = fake_block(ctx, addr, 1);
	if (!b || attribute != 6 /* SYNC_MEMOPS */)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake_modes.nosync)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	b->sync_memops = *(const unsigned *)value != 0;
	return fake_leave(CUDA_SUCCESS);
}

static int export(struct block *b, uint64_t addr, size_t bytes, int *fd)
{
	struct udmabuf_create create = {
		.memfd = b->memfd,
		.offset = addr - b->addr + b->file_offset,
		.size = bytes,
	};
	int node = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);

	if (node < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*fd = ioctl(node, UDMABUF_CREATE, &create);
	close(node);
	return *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* Requires whole pages, as the driver does, and SYNC_MEMOPS, which the driver
 * does not: but memory without that is unfit for an RDMA device. */
EXPORT int cuMemGetHandleForAddressRange(void *handle, uint64_t addr, size_t bytes, int type,
					 unsigned long long flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct block *b;

	if (!ctx)
		return rc;
	b = fake_block(ctx, addr, bytes);
	if (!b || !bytes || addr % PAGE || bytes % PAGE || type != 1 || flags || !b->sync_memops)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (!fake_modes.dmabuf)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	if (fake_modes.bar1full || bytes > (size_t)fake_modes.bar1_mib << 20)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	return fake_leave(export(b, addr, bytes, handle));
}

static int overlap(const struct pin *p, const uint8_t *mem, size_t bytes)
{
	return mem < p->mem + p->bytes && p->mem < mem + bytes;
}

EXPORT int cuMemHostRegister_v2(void *mem, size_t bytes, unsigned flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct pin *p;

	if (!ctx)
		return rc;
	if (!mem || !bytes || flags & ~3u || fake_block(ctx, (uintptr_t)mem, 1))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	for (p = ctx->pins; p; p = p->next)
		if (overlap(p, mem, bytes))
			return fake_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	p = calloc(1, sizeof *p);
	if (!p)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	*p = (struct pin){ .next = ctx->pins, .mem = mem, .bytes = bytes, .portable = flags & 1, .mapped = flags & 2 };
	ctx->pins = p;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *out, void *mem, unsigned flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct pin *p;

	if (!ctx)
		return rc;
	for (p = ctx->pins; p && p->mem != mem; p = p->next)
		;
	if (flags || !p || !p->mapped || fake_modes.nomap)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*out = (uintptr_t)mem + FAKE_MAPPED_OFFSET;
	return fake_leave(CUDA_SUCCESS);
}

/* Refuses memory that work still uses. The driver would not notice that. */
EXPORT int cuMemHostUnregister(void *mem)
{
	int rc;
	struct context *ctx = fake_enter_to_free(&rc);
	struct pin **at, *p;

	if (!ctx)
		return rc;
	if (rc) /* the caller had no way to wait for running work */
		fake_drain(ctx);
	for (at = &ctx->pins; (p = *at) && p->mem != mem; at = &p->next)
		;
	if (!p)
		return fake_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	if (fake_host_in_use(ctx, p->mem, p->bytes))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	*at = p->next;
	free(p);
	return fake_leave(rc);
}

static int pinned(struct context *ctx, const uint8_t *mem, size_t bytes)
{
	for (int i = 0; i < fake_modes.gpus; i++)
		for (struct pin *p = fake_context(i)->pins; p; p = p->next)
			if ((p->portable || fake_context(i) == ctx) && mem >= p->mem &&
			    mem + bytes <= p->mem + p->bytes)
				return 1;
	return 0;
}

uint8_t *fake_mapped(struct context *ctx, uint64_t addr, size_t bytes)
{
	uint8_t *mem = (uint8_t *)(uintptr_t)(addr - FAKE_MAPPED_OFFSET);

	if (addr < FAKE_MAPPED_OFFSET)
		return NULL;
	for (struct pin *p = ctx->pins; p; p = p->next)
		if (p->mapped && mem >= p->mem && mem + bytes <= p->mem + p->bytes)
			return mem;
	return NULL;
}

int fake_check_host(struct context *ctx, const void *mem, size_t bytes)
{
	for (struct block *b = ctx->blocks; b; b = b->next)
		if ((uintptr_t)mem < b->addr + b->bytes && b->addr < (uintptr_t)mem + bytes)
			return CUDA_ERROR_INVALID_VALUE;
	if (fake_modes.strict && !pinned(ctx, mem, bytes))
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	return CUDA_SUCCESS;
}

void fake_memory_drop(struct context *ctx)
{
	while (ctx->blocks) {
		struct block *b = ctx->blocks;

		ctx->blocks = b->next;
		unmap(b);
	}
	while (ctx->pins) {
		struct pin *p = ctx->pins;

		ctx->pins = p->next;
		free(p);
	}
	ctx->allocated = 0;
}
