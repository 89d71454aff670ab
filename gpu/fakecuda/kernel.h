/*
 * A kernel of the fake: a C function that does the work of a whole launch,
 * which the kernel's threads would do on a GPU.
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

/* The memory at a device address, up to the end of its allocation, which is
 * followed by a page that nobody may access. An invalid address ends the
 * kernel, and from then on its context fails with CUDA_ERROR_ILLEGAL_ADDRESS,
 * as on a GPU. Only for use within run. */
void *fake_ptr(uint64_t device_addr);

#endif
