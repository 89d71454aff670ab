/* Both versions of cuGetProcAddress. -DFAKE_PLAIN_SYMBOLS leaves them out: then
 * callers find a driver from before CUDA 11.3. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

#ifndef FAKE_PLAIN_SYMBOLS

/* X(name, CUDA version that has the function with these arguments, symbol) */
#define FAKE_SYMBOLS(X)                                                      \
	X(cuInit, 2000, cuInit)                                              \
	X(cuDriverGetVersion, 2020, cuDriverGetVersion)                      \
	X(cuGetErrorName, 6000, cuGetErrorName)                              \
	X(cuDeviceGet, 2000, cuDeviceGet)                                    \
	X(cuDeviceGetCount, 2000, cuDeviceGetCount)                          \
	X(cuDeviceGetName, 2000, cuDeviceGetName)                            \
	X(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2)                        \
	X(cuDeviceGetUuid, 9020, cuDeviceGetUuid)                            \
	X(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2)                       \
	X(cuDeviceGetAttribute, 2000, cuDeviceGetAttribute)                  \
	X(cuDeviceGetPCIBusId, 4010, cuDeviceGetPCIBusId)                    \
	X(cuDevicePrimaryCtxRetain, 7000, cuDevicePrimaryCtxRetain)          \
	X(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2)    \
	X(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2)                       \
	X(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2)                         \
	X(cuMemAlloc, 3020, cuMemAlloc_v2)                                   \
	X(cuMemFree, 3020, cuMemFree_v2)                                     \
	X(cuPointerSetAttribute, 6000, cuPointerSetAttribute)                \
	X(cuMemHostRegister, 6050, cuMemHostRegister_v2)                     \
	X(cuMemHostUnregister, 4000, cuMemHostUnregister)                    \
	X(cuMemsetD8, 3020, cuMemsetD8_v2)                                   \
	X(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2)                     \
	X(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2)                     \
	X(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2)                     \
	X(cuStreamCreate, 2000, cuStreamCreate)                              \
	X(cuStreamSynchronize, 2000, cuStreamSynchronize)                    \
	X(cuStreamQuery, 2000, cuStreamQuery)                                \
	X(cuStreamDestroy, 4000, cuStreamDestroy_v2)                         \
	X(cuEventCreate, 2000, cuEventCreate)                                \
	X(cuEventRecord, 2000, cuEventRecord)                                \
	X(cuEventQuery, 2000, cuEventQuery)                                  \
	X(cuEventDestroy, 4000, cuEventDestroy_v2)                           \
	X(cuModuleLoadData, 2000, cuModuleLoadData)                          \
	X(cuModuleUnload, 2000, cuModuleUnload)                              \
	X(cuModuleGetFunction, 2000, cuModuleGetFunction)                    \
	X(cuLaunchKernel, 4000, cuLaunchKernel)                              \
	X(cuMemGetHandleForAddressRange, 11070, cuMemGetHandleForAddressRange) \
	X(cuFlushGPUDirectRDMAWrites, 11030, cuFlushGPUDirectRDMAWrites)     \
	X(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2)     \
	X(cuStreamWriteValue32, 11070, cuStreamWriteValue32_v2)

/* The functions are declared where they are defined. Only their addresses
 * matter here. */
#define DECLARE(name, version, symbol) int symbol();
FAKE_SYMBOLS(DECLARE)

static int hidden(const char *name)
{
	char *old = fake_mode("old");
	int rc = old && !strcmp(*old ? old : "cuDevicePrimaryCtxRelease", name);

	free(old);
	return rc;
}

/* The fake has no older symbols, with other arguments, than those above: a
 * caller that asks for an older version gets nothing. */
static void *lookup(const char *name, int cuda_version)
{
	if (hidden(name))
		return NULL;
#define LOOKUP(base, since, symbol)                            \
	if (!strcmp(name, #base) && cuda_version >= (since))   \
		return (void *)symbol;
	FAKE_SYMBOLS(LOOKUP)
	return NULL;
}

EXPORT int cuGetProcAddress(const char *name, void **out, int cuda_version, uint64_t flags)
{
	(void)flags;
	*out = lookup(name, cuda_version);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* The newer version reports an unknown name by status 1. */
EXPORT int cuGetProcAddress_v2(const char *name, void **out, int cuda_version, uint64_t flags, int *status)
{
	(void)flags;
	*out = lookup(name, cuda_version);
	*status = !*out;
	return CUDA_SUCCESS;
}

#endif
