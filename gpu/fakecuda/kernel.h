/*
 * What the fake calls a kernel: a C function that does for a whole launch what
 * the kernel's threads would do on a GPU.
 */
#ifndef FAKECUDA_KERNEL_H
#define FAKECUDA_KERNEL_H

#include <stdint.h>

/* run gets a pointer to the value of each parameter, 8 bytes of room each. It
 * runs on the thread of its stream. */
struct fake_kernel {
	const char *name;
	int params; /* how many parameters there are, at most 16 */
	void (*run)(unsigned grid, unsigned block, void **args);
};

/* kernels.c: ends with an entry without a name. */
extern const struct fake_kernel fake_kernels[];

/* The memory behind a device address, up to the end of its allocation; behind
 * that lies a page that nobody may touch. An address that is none ends the
 * kernel, and its context fails with CUDA_ERROR_ILLEGAL_ADDRESS from then on,
 * as on a GPU. For use within run alone. */
void *fake_ptr(uint64_t device_addr);

#endif
