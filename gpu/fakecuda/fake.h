/*
 * A libcuda.so.1 and libnvidia-ml.so.1 without a GPU, for tests: it keeps
 * device memory in memory files (memfd_create), runs each stream's work on a
 * thread of its own, and is stricter than the real driver about mistakes of its
 * callers. It does not imitate a GPU's speed, PCIe, or the order in which a GPU
 * sees the writes of RDMA devices.
 *
 * Device memory is mapped twice: at its device address, at which nobody can
 * access it (PROT_NONE: the processor gets SIGSEGV, a device that pins pages
 * gets EFAULT), and elsewhere for the fake's own copies. It is filled with 0xA5
 * when it is allocated. Copies and kernels run some time after they were
 * queued. That includes copies from or to unregistered memory, which the real
 * driver sometimes executes immediately: so a missing wait results in wrong
 * bytes.
 *
 * Environment:
 *
 * GDRCP_FAKE_CUDA        words with commas between, read by cuInit:
 *   none                 no GPU: cuInit fails with CUDA_ERROR_NO_DEVICE
 *   mismatch             cuInit fails with CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
 *   noinit=CODE          cuInit fails with the CUresult
 *   stub                 cuInit fails with CUDA_ERROR_STUB_LIBRARY
 *   gpus=N               N GPUs, at most 8; 1 without it
 *   mixed                the last GPU is the fastest, and the order is the reverse
 *                        unless CUDA_DEVICE_ORDER is PCI_BUS_ID
 *   mig                  each is an instance of a divided GPU, with a UUID of its own
 *   slowopen=MS          the context of GPU 0 takes so long to make
 *   slowload=MS          and a module so long to load there
 *   opengate=PATH        the context of GPU 0 is made when there is such a file.
 *                        PATH.asked is made when that is waited for
 *   loadgate=PATH        and a module is loaded there
 *   log=PATH             a line is added to the file whenever a context is made
 *                        ("context GPU") or ended ("end GPU"), and a module is
 *                        loaded ("module GPU")
 *   launches             and whenever a kernel is launched ("launch GPU")
 *   memory=MiB           of each GPU; 4096 without it
 *   cc=MAJOR.MINOR       compute capability; 9.0 without it. Below 9.0 the GPU
 *                        orders no writes of RDMA devices (attribute 118). Of
 *                        cubins it takes those that run on it
 *   c2c                  on a coherent link (attribute 100)
 *   prohibited           compute mode: no contexts
 *   dmabuf               (the default) memory is exported through /dev/udmabuf;
 *                        CUDA_ERROR_OPERATING_SYSTEM without that
 *   nodmabuf             memory cannot be exported (attribute 124)
 *   peermem              nor here, but the mapping at the device address is an
 *                        ordinary one that the kernel can pin, as GPU memory
 *                        with nvidia-peermem; it does not crash
 *   noflush              cuFlushGPUDirectRDMAWrites does not work (attribute 117)
 *   oom                  every allocation fails
 *   unaligned            allocations begin 64 KiB behind a multiple of 2 MiB
 *   bar1=MiB             NVML reports so much BAR1, all free, 256 without it; exports
 *                        of more fail
 *   bar1full             NVML reports no free BAR1; exports fail, and pinning does
 *   nonvml               nvmlInit_v2 fails
 *   strict               copies from and to memory that is not registered fail
 *                        with CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
 *   late, late=MS        work takes this long, 5 ms without a number
 *   noload=CODE          no module loads: cuModuleLoadData returns the CUresult
 *   nojit, nojit=CODE    no PTX does, as without the driver's compiler:
 *                        CUDA_ERROR_JIT_COMPILER_NOT_FOUND, or the CUresult
 *   nocubin, nocubin=CODE  no cubin does: CUDA_ERROR_NO_BINARY_FOR_GPU, or the
 *                        CUresult
 *   nomap                kernels do not reach registered memory
 *   nosync               SYNC_MEMOPS is refused with CUDA_ERROR_NOT_SUPPORTED
 *   novalue              streams write no values (cuStreamWriteValue32)
 *   lostvalue            or do so without a trace
 *   badlaunch            launches fail
 *   hang, hangfile=PATH  kernels never end; or those that begin when there is
 *                        such a file, until it is gone. Waits for them never end
 *   badkernel, badkernel=CODE  kernels fail while they run, with
 *                        CUDA_ERROR_LAUNCH_FAILED or the CUresult: told by a later wait
 *   old, old=NAME        cuGetProcAddress does not know NAME, or
 *                        cuDevicePrimaryCtxRelease
 *
 * GDRCP_FAKE_CUDA_LEAKS  abort: dies when the last release of a primary context
 *                        finds something of it still there. It says so on
 *                        standard error in any case.
 */
#ifndef FAKECUDA_FAKE_H
#define FAKECUDA_FAKE_H

#include "kernel.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* X(name, CUresult) */
#define FAKE_ERRORS(X)                        \
	X(CUDA_SUCCESS, 0)                    \
	X(CUDA_ERROR_INVALID_VALUE, 1)        \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2)        \
	X(CUDA_ERROR_NOT_INITIALIZED, 3)      \
	X(CUDA_ERROR_STUB_LIBRARY, 34)        \
	X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)  \
	X(CUDA_ERROR_NO_DEVICE, 100)          \
	X(CUDA_ERROR_INVALID_DEVICE, 101)     \
	X(CUDA_ERROR_INVALID_IMAGE, 200)      \
	X(CUDA_ERROR_INVALID_CONTEXT, 201)    \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)  \
	X(CUDA_ERROR_INVALID_PTX, 218)        \
	X(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, 221) \
	X(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) \
	X(CUDA_ERROR_JIT_COMPILATION_DISABLED, 223) \
	X(CUDA_ERROR_OPERATING_SYSTEM, 304)   \
	X(CUDA_ERROR_INVALID_HANDLE, 400)     \
	X(CUDA_ERROR_NOT_FOUND, 500)          \
	X(CUDA_ERROR_NOT_READY, 600)          \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)    \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712) \
	X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713) \
	X(CUDA_ERROR_LAUNCH_FAILED, 719)      \
	X(CUDA_ERROR_NOT_SUPPORTED, 801)      \
	X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
	X(CUDA_ERROR_UNKNOWN, 999)

enum {
#define FAKE_ERROR(name, code) name = code,
	FAKE_ERRORS(FAKE_ERROR)
#undef FAKE_ERROR
};

enum { FAKE_GPUS_MAX = 8, FAKE_PARAMS_MAX = 16 };

/* modes.c */

struct fake_modes {
	int gpus, reversed, mig, slowopen_ms, slowload_ms, memory_mib, late_ms, cc_major, cc_minor;
	int dmabuf, peermem, c2c, prohibited, flush, oom, unaligned, bar1_mib, bar1full, nvml, strict, noload, nojit, nocubin;
	int badlaunch, badkernel, hang, launches, nomap, nosync, novalue, lostvalue;
	char hangfile[256], opengate[256], loadgate[256], log[256];
	int init; /* what cuInit returns */
};

void fake_modes_read(struct fake_modes *out);
/* The value of a word of GDRCP_FAKE_CUDA: "" if the word has no value, NULL if
 * the word is absent. The caller frees it. */
char *fake_mode(const char *word);

/* context.c: fake_lock guards the following. */

extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed; /* work was queued or done */
extern struct fake_modes fake_modes;
/* A CUresult, set when a kernel has failed: as with the driver, every later call
 * on any GPU returns it until the process ends. */
extern int fake_failed;

struct context {
	int device;
	int retained;
	struct op *oldest, **newest; /* all that is queued or runs, in the order of queueing */
	uint64_t queued;             /* how many operations ever were */
	size_t allocated;
	struct block *blocks;
	struct pin *pins;
	struct stream *streams;
	struct event *events;
	struct module *modules;
	struct stream *null_stream; /* in streams, too */
};

/* Device memory. */
struct block {
	struct block *next;
	uint64_t addr;
	size_t bytes;       /* as requested */
	uint8_t *shadow;    /* the other mapping */
	int memfd;
	uint64_t file_offset;
	int sync_memops;
	void *reserved, *shadow_reserved;
	size_t reserved_bytes, shadow_bytes;
};

/* Host memory that is registered. */
struct pin {
	struct pin *next;
	const uint8_t *mem;
	size_t bytes;
	int portable, mapped;
};

/* The distance between the addresses of registered memory for a GPU and for the
 * host: with the real driver both are usually equal, but that is not
 * guaranteed. */
#define FAKE_MAPPED_OFFSET (1ull << 52)

/* Locks, and returns the thread's current context; or unlocks again, returns
 * NULL and sets *rc. */
struct context *fake_enter(int *rc);
/* The same for a call that frees something. After a fatal error the driver
 * refuses such calls, too, and keeps the objects until the process ends. The
 * fake executes the call, so that it can report objects that nobody freed, and
 * sets *rc, which the call returns, to the error. */
struct context *fake_enter_to_free(int *rc);
/* Unlocks and returns rc. */
int fake_leave(int rc);
/* Adds a line to the log, if GDRCP_FAKE_CUDA names one. */
void fake_log(const char *what, int device);
void fake_gate(const char *path);
/* The context of a device, whether or not it is retained. */
struct context *fake_context(int device);

/* memory.c */

/* The block that holds the whole range, or NULL. */
struct block *fake_block(struct context *ctx, uint64_t addr, size_t bytes);
/* Registered memory at an address that cuMemHostGetDevicePointer gave, or NULL. */
uint8_t *fake_mapped(struct context *ctx, uint64_t addr, size_t bytes);
/* 0, or the reason why host memory may not be used in a copy. */
int fake_check_host(struct context *ctx, const void *mem, size_t bytes);
void fake_memory_drop(struct context *ctx);

/* stream.c */

struct op {
	struct op *next;  /* of the stream */
	struct op *later; /* of the context */
	uint64_t number;  /* in the context */
	enum { OP_COPY, OP_FILL, OP_LAUNCH, OP_RECORD, OP_VALUE } kind;
	uint8_t *dst;
	const uint8_t *src;
	size_t bytes;
	uint32_t value;
	/* The host's side of a copy, or the destination of a value. */
	const uint8_t *host;
	const struct fake_kernel *kernel;
	unsigned grid, block;
	uint64_t args[FAKE_PARAMS_MAX];
	struct event *event;
	uint64_t ticket;
};

/* Queues a copy of op; s is NULL for the default stream. */
int fake_queue(struct context *ctx, struct stream *s, const struct op *op);
/* Waits for all work queued earlier, but not for work that others queue
 * meanwhile, because then a call that frees memory could wait for ever.
 * Releases fake_lock meanwhile. */
void fake_drain(struct context *ctx);
/* Whether work in progress uses the host memory. */
int fake_host_in_use(struct context *ctx, const uint8_t *mem, size_t bytes);
void fake_streams_drop(struct context *ctx);

/* module.c */

/* Runs a kernel; returns a CUresult. The caller does not hold fake_lock. */
int fake_run(struct context *ctx, const struct op *op);
void fake_modules_drop(struct context *ctx);

#endif
