/* The kernels that modules loaded into the fake may have. */
#include "kernel.h"

#include <stddef.h>

const struct fake_kernel fake_kernels[] = {
	{ NULL, 0, NULL },
};
