/*
 * The part of the interface of libcuda.so.1 and libnvidia-ml.so.1 that this
 * package uses. NVIDIA keeps it stable for the life of their soname: when a
 * function's arguments change, the new function gets a new name (_v2) and the
 * old one remains. So the package builds on a machine without the CUDA toolkit.
 * The values are those of cuda.h and nvml.h.
 */
#ifndef GDRCP_GPU_ABI_H
#define GDRCP_GPU_ABI_H

#include <stddef.h>
#include <stdint.h>

struct abi_context;
struct abi_module;
struct abi_function;
struct abi_stream;
struct abi_event;
struct abi_nvml_device;

struct abi_uuid {
	uint8_t bytes[16];
};

struct abi_nvml_bar1 {
	unsigned long long total_bytes, free_bytes, used_bytes;
};

/* CUresult. */
enum {
	ABI_SUCCESS = 0,
	ABI_INVALID_VALUE = 1,
	ABI_OUT_OF_MEMORY = 2,
	ABI_STUB_LIBRARY = 34,
	ABI_NO_DEVICE = 100,
	ABI_NOT_READY = 600,
	ABI_NOT_SUPPORTED = 801,
	ABI_SYSTEM_NOT_READY = 802,
	ABI_SYSTEM_DRIVER_MISMATCH = 803,
	ABI_UNKNOWN = 999,
};

/* CUdevice_attribute. */
enum {
	ABI_ATTR_COMPUTE_MODE = 20,
	ABI_ATTR_COMPUTE_MAJOR = 75,
	ABI_ATTR_COMPUTE_MINOR = 76,
	ABI_ATTR_HOST_PAGE_TABLES = 100,
	ABI_ATTR_GPUDIRECT_RDMA = 116,
	ABI_ATTR_FLUSH_OPTIONS = 117,
	ABI_ATTR_WRITES_ORDERING = 118,
	ABI_ATTR_DMA_BUF = 124,
};

enum {
	ABI_COMPUTE_MODE_PROHIBITED = 2,
	ABI_FLUSH_OPTION_HOST = 1 << 0,       /* CUflushGPUDirectRDMAWritesOptions */
	ABI_FLUSH_TARGET_CURRENT_CTX = 0,
	ABI_FLUSH_TO_OWNER = 100,
	ABI_POINTER_SYNC_MEMOPS = 6,          /* CUpointer_attribute */
	ABI_HANDLE_DMA_BUF_FD = 1,            /* CUmemRangeHandleType */
	ABI_HOST_REGISTER_PORTABLE = 1 << 0,
	ABI_HOST_REGISTER_DEVICEMAP = 1 << 1,
	ABI_STREAM_WRITE_VALUE_DEFAULT = 0,   /* CUstreamWriteValue_flags: with a fence before */
	ABI_STREAM_NON_BLOCKING = 1 << 0,
	ABI_EVENT_DISABLE_TIMING = 1 << 1,
};

#endif
