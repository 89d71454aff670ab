/*
 * The C half of the package: calls of NVIDIA's driver. Each makes the context
 * current first, because the current context belongs to a thread, and Go moves
 * goroutines between threads.
 *
 * Functions that return int return a CUresult, 0 for success, unless a comment
 * says otherwise. No function stores a pointer that Go passed in, except for
 * host memory: gdr_pin and the copies keep its address until gdr_unpin, or
 * until the copy is done. No function calls back into Go. All may be called
 * from several threads at once.
 */
#ifndef GDRCP_GPU_SHIM_H
#define GDRCP_GPU_SHIM_H

#include "abi.h"

/* load.c: the libraries, opened at run time. */

enum { GDR_NO_LIBRARY = 1, GDR_NO_SYMBOL, GDR_STUB_LIBRARY, GDR_NO_MEMORY };

struct gdr_load_error {
	int kind;
	char symbol[64];
	char reason[512];
};

struct gdr_api;
struct gdr_nvml;
struct gdr_context;

/* Returns 0, or -1 with err filled in. The library remains open for the life of
 * the process: it starts threads that nobody can wait for. */
int gdr_load(const char *libcuda, struct gdr_api **out, struct gdr_load_error *err);
void gdr_unload(struct gdr_api *api);
/* Opens and starts NVML; returns NULL if that fails. Blocks for
 * milliseconds. */
struct gdr_nvml *gdr_nvml_open(const char *libnvml);
void gdr_nvml_close(struct gdr_nvml *nvml);
/* The BAR1 window of the GPU at a PCI address, in bytes. Returns an
 * nvmlReturn_t. */
int gdr_nvml_bar1(const struct gdr_nvml *nvml, const char *pci_address, int64_t *total, int64_t *free);

/* driver.c: devices and contexts. */

enum { GDR_NAME_BYTES = 256, GDR_PCI_BYTES = 32 };

struct gdr_identity {
	char name[GDR_NAME_BYTES];
	char pci_address[GDR_PCI_BYTES];
	uint8_t uuid[16]; /* of the MIG instance, if it is one */
	int is_instance;  /* a MIG instance */
	uint64_t memory_bytes;
};

/* Blocks while the driver starts: seconds without nvidia-persistenced. */
int gdr_init(const struct gdr_api *api);
int gdr_driver_version(const struct gdr_api *api, int *version);
int gdr_device_count(const struct gdr_api *api, int *count);
int gdr_device_identity(const struct gdr_api *api, int index, struct gdr_identity *out);
/* Returns -1 if the driver does not know the attribute. */
int gdr_device_attribute(const struct gdr_api *api, int index, int attribute);
/* The name of a CUresult, which the library owns, or NULL. */
const char *gdr_error_name(const struct gdr_api *api, int code);
/* Whether the driver is new enough to export memory. */
int gdr_can_export(const struct gdr_api *api);
int gdr_can_flush(const struct gdr_api *api);
/* Retains the primary context. Blocks while it is created: some 100 ms. */
int gdr_context_open(const struct gdr_api *api, int index, struct gdr_context **out);
/* Frees ctx, even if it fails. */
int gdr_context_close(struct gdr_context *ctx);
/* Blocks until the writes of RDMA devices are visible to the context. */
int gdr_flush_writes(const struct gdr_context *ctx);

/* memory.c: device memory, and host memory that devices access. */

struct gdr_block {
	uint64_t base; /* the address to free */
	uint64_t addr; /* the first multiple of the alignment in the block */
	int unsynced;  /* 0, or the CUresult with which the driver refused SYNC_MEMOPS */
};

/* Allocates bytes of zeroed memory at a multiple of align_bytes. The driver's
 * synchronous copies on it are synchronous for an RDMA device, too
 * (SYNC_MEMOPS), unless the block says that the driver refused that. Blocks until the memory is zeroed. */
int gdr_alloc(const struct gdr_context *ctx, size_t bytes, size_t align_bytes, struct gdr_block *out);
/* Blocks until work that uses the memory is done. */
int gdr_free(const struct gdr_context *ctx, uint64_t base);
/* Exports memory as a dma-buf, close-on-exec. The caller owns the
 * descriptor. */
int gdr_export(const struct gdr_context *ctx, uint64_t addr, size_t bytes, int *fd);
/* Stores the address at which kernels access the memory, or 0 if they cannot.
 * Blocks while pages are pinned. */
int gdr_pin(const struct gdr_context *ctx, void *mem, size_t bytes, uint64_t *addr);
int gdr_unpin(const struct gdr_context *ctx, void *mem);

/* stream.c: streams of work, marks in them, kernels. Only loading and unloading
 * modules blocks longer than the driver's queue requires. */

int gdr_stream_open(const struct gdr_context *ctx, struct abi_stream **out);
int gdr_stream_close(const struct gdr_context *ctx, struct abi_stream *s);
/* ABI_NOT_READY until all work of the stream is done. Also returns the errors
 * of that work. */
int gdr_stream_query(const struct gdr_context *ctx, struct abi_stream *s);
int gdr_copy_to_device(const struct gdr_context *ctx, struct abi_stream *s, uint64_t dst, const void *src, size_t bytes);
int gdr_copy_to_host(const struct gdr_context *ctx, struct abi_stream *s, void *dst, uint64_t src, size_t bytes);
int gdr_copy(const struct gdr_context *ctx, struct abi_stream *s, uint64_t dst, uint64_t src, size_t bytes);
int gdr_mark_open(const struct gdr_context *ctx, struct abi_event **out);
int gdr_mark_close(const struct gdr_context *ctx, struct abi_event *e);
int gdr_mark_record(const struct gdr_context *ctx, struct abi_event *e, struct abi_stream *s);
/* Queues the writing of a value at addr, an address that gdr_pin returned.
 * Earlier work of the stream is then visible to the host. ABI_NOT_SUPPORTED if
 * the driver is older than CUDA 11.7. */
int gdr_write_value(const struct gdr_context *ctx, struct abi_stream *s, uint64_t addr, uint32_t value);
/* ABI_NOT_READY until the work before the mark's last record is done. */
int gdr_mark_query(const struct gdr_context *ctx, struct abi_event *e);

enum { GDR_LAUNCH_ARGS = 16 };

/* Loads PTX, ending in NUL, or a cubin. Blocks while PTX is compiled. */
int gdr_module_load(const struct gdr_context *ctx, const void *image, struct abi_module **out);
int gdr_module_close(const struct gdr_context *ctx, struct abi_module *m);
/* Finds a kernel, which lives as long as its module. */
int gdr_function(const struct gdr_context *ctx, struct abi_module *m, const char *name,
		 struct abi_function **out);
/* Queues grid blocks of block threads with shared_bytes of dynamic shared
 * memory. Each of the first count (at most GDR_LAUNCH_ARGS) args is the value
 * of one parameter of at most 8 bytes, which is copied. */
int gdr_launch(const struct gdr_context *ctx, struct abi_stream *s, struct abi_function *fn, unsigned grid,
	       unsigned block, unsigned shared_bytes, const uint64_t *args, int count);

#endif
