/* The answers of the driver and NVML about the GPUs. */
#include "fake.h"

#include <stdio.h>
#include <string.h>

static int ready(int device)
{
	int rc;

	pthread_mutex_lock(&fake_lock);
	rc = fake_modes.init ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
	if (!fake_modes.gpus)
		rc = CUDA_ERROR_NOT_INITIALIZED;
	else if (!rc && !fake_context(device))
		rc = CUDA_ERROR_INVALID_DEVICE;
	return fake_leave(rc);
}

/* The bus number of a GPU. */
static int place(int device)
{
	return fake_modes.reversed ? fake_modes.gpus - 1 - device : device;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = 12040;
	return CUDA_SUCCESS;
}

EXPORT int cuGetErrorName(int code, const char **out)
{
	switch (code) {
#define NAME(name, value) case value: *out = #name; return CUDA_SUCCESS;
	FAKE_ERRORS(NAME)
	}
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT int cuDeviceGetCount(int *count)
{
	int rc = ready(0);

	*count = fake_modes.gpus;
	return rc;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	int rc = ready(ordinal);

	*device = ordinal;
	return rc;
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device)
{
	snprintf(name, bytes, "Fake GPU %d", device);
	return ready(device);
}

EXPORT int cuDeviceGetUuid(uint8_t uuid[16], int device)
{
	for (int i = 0; i < 16; i++)
		uuid[i] = i;
	uuid[15] = device;
	return ready(device);
}

EXPORT int cuDeviceGetUuid_v2(uint8_t uuid[16], int device)
{
	int rc = cuDeviceGetUuid(uuid, device);

	if (fake_modes.mig)
		uuid[0] = 0x99;
	return rc;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	*bytes = (size_t)fake_modes.memory_mib << 20;
	return ready(device);
}

/* In the driver's spelling, which differs from that of sysfs. */
EXPORT int cuDeviceGetPCIBusId(char *address, int bytes, int device)
{
	snprintf(address, bytes, "0000:%02X:00.0", 0x1b + 0x10 * place(device));
	return ready(device);
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	int rc = ready(device);

	if (rc)
		return rc;
	switch (attribute) {
	case 20: /* COMPUTE_MODE */
		*value = fake_modes.prohibited ? 2 : 0;
		return CUDA_SUCCESS;
	case 75: /* COMPUTE_CAPABILITY_MAJOR */
		*value = fake_modes.cc_major;
		return CUDA_SUCCESS;
	case 76:
		*value = fake_modes.cc_minor;
		return CUDA_SUCCESS;
	case 100: /* PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES */
		*value = fake_modes.c2c;
		return CUDA_SUCCESS;
	case 116: /* GPU_DIRECT_RDMA_SUPPORTED */
		*value = 1;
		return CUDA_SUCCESS;
	case 117: /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: HOST */
		*value = fake_modes.flush;
		return CUDA_SUCCESS;
	case 118: /* GPU_DIRECT_RDMA_WRITES_ORDERING: OWNER */
		*value = fake_modes.cc_major >= 9 ? 100 : 0;
		return CUDA_SUCCESS;
	case 124: /* DMA_BUF_SUPPORTED */
		*value = fake_modes.dmabuf;
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* NVML. Its handles are numbers of GPUs, from 1. */

enum { NVML_SUCCESS, NVML_UNINITIALIZED = 1, NVML_NOT_FOUND = 6, NVML_DRIVER_NOT_LOADED = 9 };

static int nvml_users;

EXPORT int nvmlInit_v2(void)
{
	pthread_mutex_lock(&fake_lock);
	if (!fake_modes.nvml)
		return fake_leave(NVML_DRIVER_NOT_LOADED);
	nvml_users++;
	return fake_leave(NVML_SUCCESS);
}

EXPORT int nvmlShutdown(void)
{
	pthread_mutex_lock(&fake_lock);
	if (!nvml_users)
		return fake_leave(NVML_UNINITIALIZED);
	nvml_users--;
	return fake_leave(NVML_SUCCESS);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **out)
{
	char have[32];

	if (!nvml_users)
		return NVML_UNINITIALIZED;
	for (int i = 0; i < fake_modes.gpus; i++) {
		cuDeviceGetPCIBusId(have, sizeof have, i);
		if (!strcasecmp(have, address)) {
			*out = (void *)(uintptr_t)(i + 1);
			return NVML_SUCCESS;
		}
	}
	return NVML_NOT_FOUND;
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long out[3])
{
	unsigned long long total = (unsigned long long)fake_modes.bar1_mib << 20;

	if (!nvml_users)
		return NVML_UNINITIALIZED;
	if (!device)
		return NVML_NOT_FOUND;
	out[0] = total;
	out[1] = fake_modes.bar1full ? 0 : total;
	out[2] = total - out[1];
	return NVML_SUCCESS;
}
