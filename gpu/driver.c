//go:build linux && cgo

#include "table.h"

#include <stdlib.h>
#include <string.h>

int gdr_init(const struct gdr_api *api)
{
	return api->cuInit(0);
}

int gdr_driver_version(const struct gdr_api *api, int *version)
{
	return api->cuDriverGetVersion(version);
}

int gdr_device_count(const struct gdr_api *api, int *count)
{
	return api->cuDeviceGetCount(count);
}

int gdr_device_identity(const struct gdr_api *api, int index, struct gdr_identity *out)
{
	struct abi_uuid uuid, own;
	size_t bytes;
	int device, rc = api->cuDeviceGet(&device, index);

	if (!rc)
		rc = api->cuDeviceGetName(out->name, GDR_NAME_BYTES, device);
	if (!rc)
		rc = api->cuDeviceGetPCIBusId(out->pci_address, GDR_PCI_BYTES, device);
	if (!rc)
		rc = api->cuDeviceGetUuid(&uuid, device);
	if (!rc)
		rc = api->cuDeviceTotalMem(&bytes, device);
	if (rc)
		return rc;
	out->memory_bytes = bytes;
	/* The first function gives a divided GPU's own UUID, the second that of the
	 * instance (cuda.h). If they differ, there is an instance. */
	out->is_instance = api->cuDeviceGetUuid_v2 && !api->cuDeviceGetUuid_v2(&own, device) &&
			   memcmp(&uuid, &own, sizeof uuid);
	memcpy(out->uuid, out->is_instance ? own.bytes : uuid.bytes, sizeof out->uuid);
	return 0;
}

int gdr_device_attribute(const struct gdr_api *api, int index, int attribute)
{
	int device, value;

	if (api->cuDeviceGet(&device, index) || api->cuDeviceGetAttribute(&value, attribute, device))
		return -1;
	return value;
}

const char *gdr_error_name(const struct gdr_api *api, int code)
{
	const char *name;

	return api->cuGetErrorName(code, &name) ? NULL : name;
}

int gdr_can_export(const struct gdr_api *api)
{
	return api->cuMemGetHandleForAddressRange != NULL;
}

int gdr_can_flush(const struct gdr_api *api)
{
	return api->cuFlushGPUDirectRDMAWrites != NULL;
}

int gdr_context_open(const struct gdr_api *api, int index, struct gdr_context **out)
{
	struct gdr_context *ctx = calloc(1, sizeof *ctx);
	int rc;

	if (!ctx)
		return ABI_OUT_OF_MEMORY;
	ctx->api = api;
	rc = api->cuDeviceGet(&ctx->device, index);
	if (!rc)
		rc = api->cuDevicePrimaryCtxRetain(&ctx->primary, ctx->device);
	if (rc) {
		free(ctx);
		return rc;
	}
	*out = ctx;
	return 0;
}

int gdr_context_close(struct gdr_context *ctx)
{
	int rc = ctx->api->cuDevicePrimaryCtxRelease(ctx->device);

	free(ctx);
	return rc;
}

int gdr_flush_writes(const struct gdr_context *ctx)
{
	int rc = gdr_enter(ctx);

	if (rc)
		return rc;
	return gdr_leave(ctx, ctx->api->cuFlushGPUDirectRDMAWrites(ABI_FLUSH_TARGET_CURRENT_CTX,
								  ABI_FLUSH_TO_OWNER));
}
