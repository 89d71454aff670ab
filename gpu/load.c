//go:build linux && cgo

#define _GNU_SOURCE
#include "table.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The source of libcuda's functions. */
struct source {
	void *library;
	/* cuGetProcAddress, since CUDA 12.0 and 11.3. If either exists, only
	 * that one is used: it knows which of several functions of one name has
	 * the arguments that a CUDA version declares. */
	int (*address_v2)(const char *, void **, int, uint64_t, int *);
	int (*address)(const char *, void **, int, uint64_t);
	int stub; /* a lookup reported that the library is not a driver */
};

static void *find(struct source *from, const char *name, int version, const char *exported)
{
	void *found = NULL;
	int status, rc = ABI_SUCCESS;

	if (from->address_v2)
		rc = from->address_v2(name, &found, version, 0, &status);
	else if (from->address)
		rc = from->address(name, &found, version, 0);
	else
		return dlsym(from->library, exported);
	from->stub |= rc == ABI_STUB_LIBRARY;
	return rc == ABI_SUCCESS ? found : NULL;
}

/* Keeps the first failure. */
static void *need(struct source *from, const char *name, int version, const char *exported,
		  struct gdr_load_error *err)
{
	void *found = find(from, name, version, exported);

	if (!found && !err->kind) {
		err->kind = from->stub ? GDR_STUB_LIBRARY : GDR_NO_SYMBOL;
		snprintf(err->symbol, sizeof err->symbol, "%s", exported);
	}
	return found;
}

int gdr_load(const char *libcuda, struct gdr_api **out, struct gdr_load_error *err)
{
	struct source from = { .library = dlopen(libcuda, RTLD_NOW | RTLD_LOCAL) };
	struct gdr_api *api;

	memset(err, 0, sizeof *err);
	if (!from.library) {
		const char *why = dlerror();

		err->kind = GDR_NO_LIBRARY;
		snprintf(err->reason, sizeof err->reason, "%s", why ? why : "unknown reason");
		return -1;
	}
	api = calloc(1, sizeof *api);
	if (!api) {
		err->kind = GDR_NO_MEMORY;
		return -1;
	}
	from.address_v2 = dlsym(from.library, "cuGetProcAddress_v2");
	from.address = dlsym(from.library, "cuGetProcAddress");
#define NEED(name, version, exported, args) api->name = need(&from, #name, version, exported, err);
#define FIND(name, version, exported, args) api->name = find(&from, #name, version, exported);
#define FIND_NEWER(field, name, version, exported, args) api->field = find(&from, name, version, exported);
	GDR_CUDA_REQUIRED(NEED)
	GDR_CUDA_OPTIONAL(FIND)
	GDR_CUDA_NEWER(FIND_NEWER)
	if (err->kind) {
		free(api);
		return -1;
	}
	*out = api;
	return 0;
}

void gdr_unload(struct gdr_api *api)
{
	free(api);
}

struct gdr_nvml *gdr_nvml_open(const char *libnvml)
{
	struct gdr_nvml *nvml = calloc(1, sizeof *nvml);
	int missing = 0;

	if (!nvml)
		return NULL;
	nvml->library = dlopen(libnvml, RTLD_NOW | RTLD_LOCAL);
	if (!nvml->library) {
		free(nvml);
		return NULL;
	}
#define FIND_NVML(name, args) missing |= !(nvml->name = dlsym(nvml->library, #name));
	GDR_NVML(FIND_NVML)
	if (missing || nvml->nvmlInit_v2() != 0) {
		dlclose(nvml->library);
		free(nvml);
		return NULL;
	}
	return nvml;
}

void gdr_nvml_close(struct gdr_nvml *nvml)
{
	nvml->nvmlShutdown();
	dlclose(nvml->library);
	free(nvml);
}

int gdr_nvml_bar1(const struct gdr_nvml *nvml, const char *pci_address, int64_t *total, int64_t *free)
{
	struct abi_nvml_device *device;
	struct abi_nvml_bar1 bar1;
	int rc = nvml->nvmlDeviceGetHandleByPciBusId_v2(pci_address, &device);

	if (rc == 0)
		rc = nvml->nvmlDeviceGetBAR1MemoryInfo(device, &bar1);
	if (rc == 0) {
		*total = bar1.total_bytes;
		*free = bar1.free_bytes;
	}
	return rc;
}
