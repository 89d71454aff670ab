/* The functions of the two libraries, and the C half's form of a context. */
#ifndef GDRCP_GPU_TABLE_H
#define GDRCP_GPU_TABLE_H

#include "shim.h"

/*
 * X(name, version, exported, arguments): the function's name for
 * cuGetProcAddress; the CUDA version that introduced these arguments,
 * 1000*major + 10*minor (cudaTypedefs.h), which is the version to request; and
 * the name of that function among the library's symbols. All return a CUresult.
 */
#define GDR_CUDA_REQUIRED(X)                                                                              \
	X(cuInit, 2000, "cuInit", (unsigned))                                                             \
	X(cuDriverGetVersion, 2020, "cuDriverGetVersion", (int *))                                        \
	X(cuGetErrorName, 6000, "cuGetErrorName", (int, const char **))                                   \
	X(cuDeviceGet, 2000, "cuDeviceGet", (int *, int))                                                 \
	X(cuDeviceGetCount, 2000, "cuDeviceGetCount", (int *))                                            \
	X(cuDeviceGetName, 2000, "cuDeviceGetName", (char *, int, int))                                   \
	X(cuDeviceGetUuid, 9020, "cuDeviceGetUuid", (struct abi_uuid *, int))                             \
	X(cuDeviceTotalMem, 3020, "cuDeviceTotalMem_v2", (size_t *, int))                                 \
	X(cuDeviceGetAttribute, 2000, "cuDeviceGetAttribute", (int *, int, int))                          \
	X(cuDeviceGetPCIBusId, 4010, "cuDeviceGetPCIBusId", (char *, int, int))                           \
	X(cuDevicePrimaryCtxRetain, 7000, "cuDevicePrimaryCtxRetain", (struct abi_context **, int))       \
	X(cuDevicePrimaryCtxRelease, 11000, "cuDevicePrimaryCtxRelease_v2", (int))                        \
	X(cuCtxPushCurrent, 4000, "cuCtxPushCurrent_v2", (struct abi_context *))                          \
	X(cuCtxPopCurrent, 4000, "cuCtxPopCurrent_v2", (struct abi_context **))                           \
	X(cuMemAlloc, 3020, "cuMemAlloc_v2", (uint64_t *, size_t))                                        \
	X(cuMemFree, 3020, "cuMemFree_v2", (uint64_t))                                                    \
	X(cuPointerSetAttribute, 6000, "cuPointerSetAttribute", (const void *, int, uint64_t))            \
	X(cuMemHostRegister, 6050, "cuMemHostRegister_v2", (void *, size_t, unsigned))                    \
	X(cuMemHostUnregister, 4000, "cuMemHostUnregister", (void *))                                     \
	X(cuMemsetD8, 3020, "cuMemsetD8_v2", (uint64_t, uint8_t, size_t))                                 \
	X(cuMemcpyHtoDAsync, 3020, "cuMemcpyHtoDAsync_v2",                                                \
	  (uint64_t, const void *, size_t, struct abi_stream *))                                          \
	X(cuMemcpyDtoHAsync, 3020, "cuMemcpyDtoHAsync_v2", (void *, uint64_t, size_t, struct abi_stream *)) \
	X(cuMemcpyDtoDAsync, 3020, "cuMemcpyDtoDAsync_v2",                                                \
	  (uint64_t, uint64_t, size_t, struct abi_stream *))                                              \
	X(cuStreamCreate, 2000, "cuStreamCreate", (struct abi_stream **, unsigned))                       \
	X(cuStreamSynchronize, 2000, "cuStreamSynchronize", (struct abi_stream *))                        \
	X(cuStreamQuery, 2000, "cuStreamQuery", (struct abi_stream *))                                    \
	X(cuStreamDestroy, 4000, "cuStreamDestroy_v2", (struct abi_stream *))                             \
	X(cuEventCreate, 2000, "cuEventCreate", (struct abi_event **, unsigned))                          \
	X(cuEventRecord, 2000, "cuEventRecord", (struct abi_event *, struct abi_stream *))                \
	X(cuEventQuery, 2000, "cuEventQuery", (struct abi_event *))                                      \
	X(cuEventDestroy, 4000, "cuEventDestroy_v2", (struct abi_event *))                                \
	X(cuModuleLoadData, 2000, "cuModuleLoadData", (struct abi_module **, const void *))               \
	X(cuModuleUnload, 2000, "cuModuleUnload", (struct abi_module *))                                  \
	X(cuModuleGetFunction, 2000, "cuModuleGetFunction",                                               \
	  (struct abi_function **, struct abi_module *, const char *))                                    \
	X(cuLaunchKernel, 4000, "cuLaunchKernel",                                                         \
	  (struct abi_function *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,   \
	   struct abi_stream *, void **, void **))

/* NULL if the driver is older. */
#define GDR_CUDA_OPTIONAL(X)                                                                              \
	X(cuMemGetHandleForAddressRange, 11070, "cuMemGetHandleForAddressRange",                          \
	  (void *, uint64_t, size_t, int, unsigned long long))                                            \
	X(cuFlushGPUDirectRDMAWrites, 11030, "cuFlushGPUDirectRDMAWrites", (int, int))                    \
	X(cuMemHostGetDevicePointer, 3020, "cuMemHostGetDevicePointer_v2", (uint64_t *, void *, unsigned)) \
	X(cuStreamWriteValue32, 11070, "cuStreamWriteValue32_v2",                                         \
	  (struct abi_stream *, uint64_t, uint32_t, unsigned))

/* X(field, name, version, exported, arguments): newer functions with a name
 * that is also required. For the newer version an older driver may return the
 * required function again. */
#define GDR_CUDA_NEWER(X)                                                                                 \
	X(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040, "cuDeviceGetUuid_v2", (struct abi_uuid *, int))

/* X(name, arguments): functions of NVML. All return an nvmlReturn_t, 0 for success. */
#define GDR_NVML(X)                                                                                       \
	X(nvmlInit_v2, (void))                                                                            \
	X(nvmlShutdown, (void))                                                                           \
	X(nvmlDeviceGetHandleByPciBusId_v2, (const char *, struct abi_nvml_device **))                    \
	X(nvmlDeviceGetBAR1MemoryInfo, (struct abi_nvml_device *, struct abi_nvml_bar1 *))

struct gdr_api {
#define GDR_FIELD(name, version, exported, args) int (*name) args;
	GDR_CUDA_REQUIRED(GDR_FIELD)
	GDR_CUDA_OPTIONAL(GDR_FIELD)
#undef GDR_FIELD
#define GDR_FIELD(field, name, version, exported, args) int (*field) args;
	GDR_CUDA_NEWER(GDR_FIELD)
#undef GDR_FIELD
};

struct gdr_nvml {
	void *library;
#define GDR_FIELD(name, args) int (*name) args;
	GDR_NVML(GDR_FIELD)
#undef GDR_FIELD
};

struct gdr_context {
	const struct gdr_api *api;
	int device;
	struct abi_context *primary;
};

/* Makes the context the thread's current one, until gdr_leave. */
static inline int gdr_enter(const struct gdr_context *ctx)
{
	return ctx->api->cuCtxPushCurrent(ctx->primary);
}

/* Ends gdr_enter. Returns rc or, if that is 0, the error of ending it. */
static inline int gdr_leave(const struct gdr_context *ctx, int rc)
{
	struct abi_context *was;
	int popped = ctx->api->cuCtxPopCurrent(&was);

	return rc ? rc : popped;
}

#endif
