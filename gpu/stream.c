//go:build linux && cgo

#include "table.h"

int gdr_stream_open(const struct gdr_context *ctx, struct abi_stream **out)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuStreamCreate(out, ABI_STREAM_NON_BLOCKING));
}

int gdr_stream_close(const struct gdr_context *ctx, struct abi_stream *s)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuStreamDestroy(s));
}

int gdr_stream_query(const struct gdr_context *ctx, struct abi_stream *s)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuStreamQuery(s));
}

int gdr_copy_to_device(const struct gdr_context *ctx, struct abi_stream *s, uint64_t dst, const void *src, size_t bytes)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuMemcpyHtoDAsync(dst, src, bytes, s));
}

int gdr_copy_to_host(const struct gdr_context *ctx, struct abi_stream *s, void *dst, uint64_t src, size_t bytes)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuMemcpyDtoHAsync(dst, src, bytes, s));
}

int gdr_copy(const struct gdr_context *ctx, struct abi_stream *s, uint64_t dst, uint64_t src, size_t bytes)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuMemcpyDtoDAsync(dst, src, bytes, s));
}

int gdr_mark_open(const struct gdr_context *ctx, struct abi_event **out)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuEventCreate(out, ABI_EVENT_DISABLE_TIMING));
}

int gdr_mark_close(const struct gdr_context *ctx, struct abi_event *e)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuEventDestroy(e));
}

int gdr_mark_record(const struct gdr_context *ctx, struct abi_event *e, struct abi_stream *s)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuEventRecord(e, s));
}

int gdr_write_value(const struct gdr_context *ctx, struct abi_stream *s, uint64_t addr, uint32_t value)
{
	int rc = ctx->api->cuStreamWriteValue32 ? gdr_enter(ctx) : ABI_NOT_SUPPORTED;

	return rc ? rc : gdr_leave(ctx, ctx->api->cuStreamWriteValue32(s, addr, value, ABI_STREAM_WRITE_VALUE_DEFAULT));
}

int gdr_mark_query(const struct gdr_context *ctx, struct abi_event *e)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuEventQuery(e));
}

int gdr_module_load(const struct gdr_context *ctx, const void *image, struct abi_module **out)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuModuleLoadData(out, image));
}

int gdr_module_close(const struct gdr_context *ctx, struct abi_module *m)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuModuleUnload(m));
}

int gdr_function(const struct gdr_context *ctx, struct abi_module *m, const char *name,
		 struct abi_function **out)
{
	int rc = gdr_enter(ctx);

	return rc ? rc : gdr_leave(ctx, ctx->api->cuModuleGetFunction(out, m, name));
}

int gdr_launch(const struct gdr_context *ctx, struct abi_stream *s, struct abi_function *fn, unsigned grid,
	       unsigned block, unsigned shared_bytes, const uint64_t *args, int count)
{
	void *params[GDR_LAUNCH_ARGS];
	int rc;

	if (count > GDR_LAUNCH_ARGS)
		return ABI_INVALID_VALUE;
	/* The driver reads as many bytes of each arg as the parameter has. */
	for (int i = 0; i < count; i++)
		params[i] = (void *)&args[i];
	rc = gdr_enter(ctx);
	if (rc)
		return rc;
	return gdr_leave(ctx, ctx->api->cuLaunchKernel(fn, grid, 1, 1, block, 1, 1, shared_bytes, s, params, NULL));
}
