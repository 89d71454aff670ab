//go:build linux && cgo

#include "table.h"

#include <fcntl.h>
#include <unistd.h>

/* The memory is zeroed in the default stream, for which no other stream of this
 * package waits. So wait for it here. */
static int prepare(const struct gdr_api *api, struct gdr_block *b, size_t bytes)
{
	unsigned on = 1;
	int rc;

	b->unsynced = api->cuPointerSetAttribute(&on, ABI_POINTER_SYNC_MEMOPS, b->base);
	rc = api->cuMemsetD8(b->base, 0, bytes);
	if (!rc)
		rc = api->cuStreamSynchronize(NULL);
	return rc;
}

/* cuMemAlloc guarantees an alignment of 256 bytes and aligns large blocks to
 * more. A larger block is allocated only if that was not enough. */
static int alloc_aligned(const struct gdr_api *api, size_t *bytes, size_t align, struct gdr_block *out)
{
	int rc = api->cuMemAlloc(&out->base, *bytes);

	if (!rc && out->base % align) {
		api->cuMemFree(out->base);
		*bytes += align;
		rc = api->cuMemAlloc(&out->base, *bytes);
	}
	out->addr = (out->base + align - 1) / align * align;
	return rc;
}

int gdr_alloc(const struct gdr_context *ctx, size_t bytes, size_t align_bytes, struct gdr_block *out)
{
	const struct gdr_api *api = ctx->api;
	int rc = gdr_enter(ctx);

	if (rc)
		return rc;
	rc = alloc_aligned(api, &bytes, align_bytes, out);
	if (rc)
		return gdr_leave(ctx, rc);
	rc = prepare(api, out, bytes);
	if (rc)
		api->cuMemFree(out->base);
	return gdr_leave(ctx, rc);
}

int gdr_free(const struct gdr_context *ctx, uint64_t base)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuMemFree(base));
}

int gdr_export(const struct gdr_context *ctx, uint64_t addr, size_t bytes, int *fd)
{
	int exported = -1;
	int rc = gdr_enter(ctx);

	if (rc)
		return rc;
	/* Without CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE (CUDA 12.8): that is for mlx5's Data
	 * Direct only. Plain ibv_reg_dmabuf_mr may take such a dma-buf, and the I/O then fails;
	 * some GPUs refuse the flag (UCX #11584). */
	rc = gdr_leave(ctx, ctx->api->cuMemGetHandleForAddressRange(&exported, addr, bytes,
								    ABI_HANDLE_DMA_BUF_FD, 0));
	if (rc)
		return rc;
	/* The driver does not promise close-on-exec. If another thread forks
	 * between the two calls, the child keeps the memory until it execs
	 * again. */
	if (fcntl(exported, F_SETFD, FD_CLOEXEC) < 0) {
		close(exported);
		return ABI_UNKNOWN;
	}
	*fd = exported;
	return 0;
}

int gdr_pin(const struct gdr_context *ctx, void *mem, size_t bytes, uint64_t *addr)
{
	const struct gdr_api *api = ctx->api;
	int rc = gdr_enter(ctx);

	*addr = 0;
	if (rc)
		return rc;
	rc = api->cuMemHostRegister(mem, bytes, ABI_HOST_REGISTER_PORTABLE | ABI_HOST_REGISTER_DEVICEMAP);
	if (!rc && api->cuMemHostGetDevicePointer && api->cuMemHostGetDevicePointer(addr, mem, 0))
		*addr = 0;
	return gdr_leave(ctx, rc);
}

int gdr_unpin(const struct gdr_context *ctx, void *mem)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuMemHostUnregister(mem));
}
