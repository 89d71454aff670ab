/*
 * Calls the fake libcuda as its own driver would be called, wrongly above all:
 *   fake_check LIBRARY
 * Package gpu never makes such calls, because it pushes a context, keeps its
 * handles and checks bounds. A fake that let them pass would not show when the
 * package stops doing so. If something is wrong, this program says what, and
 * exits with 1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static int failures;
static void *library;

/* Calls a function by its symbol, with arguments of the machine's word each. */
static int call(const char *symbol, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d)
{
	int (*fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) = dlsym(library, symbol);

	if (!fn) {
		printf("no %s\n", symbol);
		exit(1);
	}
	return fn(a, b, c, d);
}

#define P(x) ((uintptr_t)(x))

static void want(int code, const char *what, int got)
{
	if (got != code) {
		printf("%s: %d, want %d\n", what, got, code);
		failures++;
	}
}

enum { OK = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400,
       NOT_FOUND = 500, NOT_REGISTERED = 713, NOT_SUPPORTED = 801 };

static void without_context(void)
{
	uint64_t addr;
	void *p;

	want(INVALID_CONTEXT, "allocate", call("cuMemAlloc_v2", P(&addr), 4096, 0, 0));
	want(INVALID_CONTEXT, "free", call("cuMemFree_v2", 4096, 0, 0, 0));
	want(INVALID_CONTEXT, "stream", call("cuStreamCreate", P(&p), 1, 0, 0));
	want(INVALID_CONTEXT, "event", call("cuEventCreate", P(&p), 0, 0, 0));
	want(INVALID_CONTEXT, "register", call("cuMemHostRegister_v2", P(&addr), 8, 1, 0));
	want(INVALID_CONTEXT, "flush", call("cuFlushGPUDirectRDMAWrites", 0, 100, 0, 0));
	want(INVALID_CONTEXT, "synchronize", call("cuStreamSynchronize", 0, 0, 0, 0));
	want(INVALID_CONTEXT, "pop", call("cuCtxPopCurrent_v2", P(&p), 0, 0, 0));
	want(INVALID_CONTEXT, "push", call("cuCtxPushCurrent_v2", P(&p), 0, 0, 0));
}

static void handles(void)
{
	int none = 0;

	want(INVALID_VALUE, "free an address", call("cuMemFree_v2", 4096, 0, 0, 0));
	want(INVALID_HANDLE, "wait for a stream", call("cuStreamSynchronize", P(&none), 0, 0, 0));
	want(INVALID_HANDLE, "destroy a stream", call("cuStreamDestroy_v2", P(&none), 0, 0, 0));
	want(INVALID_HANDLE, "destroy the default stream", call("cuStreamDestroy_v2", 0, 0, 0, 0));
	want(INVALID_HANDLE, "record an event", call("cuEventRecord", P(&none), 0, 0, 0));
	want(INVALID_HANDLE, "wait for an event", call("cuEventQuery", P(&none), 0, 0, 0));
	want(INVALID_HANDLE, "destroy an event", call("cuEventDestroy_v2", P(&none), 0, 0, 0));
	want(INVALID_HANDLE, "unload a module", call("cuModuleUnload", P(&none), 0, 0, 0));
	want(NOT_REGISTERED, "unregister", call("cuMemHostUnregister", P(&none), 0, 0, 0));
	want(NOT_SUPPORTED, "a stream that waits for the default one", call("cuStreamCreate", P(&none), 0, 0, 0));
	want(INVALID_VALUE, "flush another scope", call("cuFlushGPUDirectRDMAWrites", 0, 1, 0, 0));
}

static void copies(void *host)
{
	uint64_t one, two, mapped;
	int fd, on = 1;

	want(OK, "allocate", call("cuMemAlloc_v2", P(&one), 5000, 0, 0));
	want(OK, "allocate", call("cuMemAlloc_v2", P(&two), 4096, 0, 0));
	want(OK, "the last byte", call("cuMemcpyHtoDAsync_v2", one + 4999, P(host), 1, 0));
	want(INVALID_VALUE, "a byte too far", call("cuMemcpyHtoDAsync_v2", one + 4999, P(host), 2, 0));
	want(INVALID_VALUE, "a byte too early", call("cuMemcpyDtoHAsync_v2", P(host), one - 1, 1, 0));
	want(INVALID_VALUE, "a copy too far", call("cuMemcpyDtoDAsync_v2", two, one, 4097, 0));
	want(INVALID_VALUE, "more bytes than addresses", call("cuMemcpyDtoHAsync_v2", P(host), one + 1, (uintptr_t)-1, 0));
	want(INVALID_VALUE, "device memory for the host's", call("cuMemcpyHtoDAsync_v2", one, two, 8, 0));
	want(INVALID_VALUE, "zeros too far", call("cuMemsetD8_v2", one, 0, 5001, 0));
	want(INVALID_VALUE, "free the middle", call("cuMemFree_v2", one + 4096, 0, 0, 0));
	want(INVALID_VALUE, "export without SYNC_MEMOPS", call("cuMemGetHandleForAddressRange", P(&fd), two, 4096, 1));
	want(OK, "SYNC_MEMOPS", call("cuPointerSetAttribute", P(&on), 6, one, 0));
	want(INVALID_VALUE, "export no page", call("cuMemGetHandleForAddressRange", P(&fd), one, 5000, 1));
	want(INVALID_VALUE, "register device memory", call("cuMemHostRegister_v2", one, 4096, 1, 0));
	want(OK, "register", call("cuMemHostRegister_v2", P(host), 8, 1, 0));
	want(INVALID_VALUE, "reach what is not mapped", call("cuMemHostGetDevicePointer_v2", P(&mapped), P(host), 0, 0));
	want(OK, "unregister", call("cuMemHostUnregister", P(host), 0, 0, 0));
	want(OK, "register and map", call("cuMemHostRegister_v2", P(host), 8, 3, 0));
	want(OK, "reach it", call("cuMemHostGetDevicePointer_v2", P(&mapped), P(host), 0, 0));
	want(INVALID_VALUE, "write a value by the host's address", call("cuStreamWriteValue32_v2", 0, P(host), 1, 0));
	want(INVALID_VALUE, "across words", call("cuStreamWriteValue32_v2", 0, mapped + 2, 1, 0));
	want(INVALID_VALUE, "too far", call("cuStreamWriteValue32_v2", 0, mapped + 8, 1, 0));
	want(OK, "write a value", call("cuStreamWriteValue32_v2", 0, mapped + 4, 1, 0));
	want(OK, "wait", call("cuStreamSynchronize", 0, 0, 0, 0));
	want(OK, "unregister", call("cuMemHostUnregister", P(host), 0, 0, 0));
	want(INVALID_VALUE, "write where nothing is registered", call("cuStreamWriteValue32_v2", 0, mapped, 1, 0));
	want(OK, "wait", call("cuStreamSynchronize", 0, 0, 0, 0));
	want(OK, "free", call("cuMemFree_v2", one, 0, 0, 0));
	want(INVALID_VALUE, "free again", call("cuMemFree_v2", one, 0, 0, 0));
	want(INVALID_VALUE, "copy to what was freed", call("cuMemcpyHtoDAsync_v2", one, P(host), 1, 0));
	want(OK, "free", call("cuMemFree_v2", two, 0, 0, 0));
}

/* The GPU is of compute capability 9.0. */
static void modules(void)
{
	Elf64_Ehdr cubin = {
		.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT },
		.e_machine = EM_CUDA,
		.e_flags = 0x46055a,
	};
	void *module, *function;

	want(OK, "a cubin for 9.0", call("cuModuleLoadData", P(&module), P(&cubin), 0, 0));
	want(NOT_FOUND, "a kernel that it has not", call("cuModuleGetFunction", P(&function), P(module), P("fake_fill"), 0));
	want(OK, "unload", call("cuModuleUnload", P(module), 0, 0, 0));
	for (int sm = 0; sm < 256; sm++) {
		cubin.e_flags = 0x460500 | sm;
		if (sm != 90)
			want(NO_BINARY, "a cubin for another GPU", call("cuModuleLoadData", P(&module), P(&cubin), 0, 0));
	}
	cubin.e_flags = 0x46055a;
	cubin.e_machine = EM_X86_64;
	want(INVALID_IMAGE, "a program for the processor", call("cuModuleLoadData", P(&module), P(&cubin), 0, 0));
	want(INVALID_IMAGE, "no image", call("cuModuleLoadData", P(&module), 0, 0, 0));
	want(INVALID_IMAGE, "text that is no PTX", call("cuModuleLoadData", P(&module), P("ELF"), 0, 0));
}

static void addresses(void)
{
	void *found;
	int status = -1;
	int (*get)(const char *, void **, int, uint64_t, int *) = dlsym(library, "cuGetProcAddress_v2");

	want(OK, "look up", get("cuMemAlloc", &found, 3020, 0, &status));
	if (found != dlsym(library, "cuMemAlloc_v2") || status != 0) {
		printf("cuMemAlloc since 3.2 is %p with status %d\n", found, status);
		failures++;
	}
	get("cuMemAlloc", &found, 2000, 0, &status);
	if (found) {
		printf("an older cuMemAlloc is there\n");
		failures++;
	}
	want(NOT_FOUND, "look up what is not there", call("cuGetProcAddress", P("cuNothing"), P(&found), 12000, 0));
}

int main(int argc, char **argv)
{
	void *ctx, *host = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
	if (!library) {
		printf("open %s: %s\n", argc == 2 ? argv[1] : "nothing", dlerror());
		return 1;
	}
	addresses();
	want(NOT_INITIALIZED, "retain before cuInit", call("cuDevicePrimaryCtxRetain", P(&ctx), 0, 0, 0));
	want(OK, "cuInit", call("cuInit", 0, 0, 0, 0));
	without_context();
	want(OK, "retain", call("cuDevicePrimaryCtxRetain", P(&ctx), 0, 0, 0));
	want(OK, "push", call("cuCtxPushCurrent_v2", P(ctx), 0, 0, 0));
	handles();
	copies(host);
	modules();
	want(OK, "release", call("cuDevicePrimaryCtxRelease_v2", 0, 0, 0, 0));
	want(INVALID_CONTEXT, "release again", call("cuDevicePrimaryCtxRelease_v2", 0, 0, 0, 0));
	want(INVALID_CONTEXT, "synchronize when released", call("cuStreamSynchronize", 0, 0, 0, 0));
	return failures != 0;
}
