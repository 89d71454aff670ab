/* Modules, and launches of the kernels of kernels.c. */
#define _GNU_SOURCE
#include "fake.h"

#include <elf.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct function {
	struct function *next;
	const struct fake_kernel *kernel;
};

struct module {
	struct module *next;
	char *image; /* text, or a cubin up to the end of its tables */
	struct function *functions;
};

/* The context whose kernel this stream's thread is running. */
static __thread struct context *running;
static __thread jmp_buf stopped;

/* fake_fill: writes the low byte of value to bytes of device memory. It is for
 * the tests of launches. */
static void fill(unsigned grid, unsigned block, void **args)
{
	uint64_t addr = *(uint64_t *)args[0], value = *(uint64_t *)args[1], bytes = *(uint64_t *)args[2];

	(void)grid, (void)block;
	memset(fake_ptr(addr), (int)value, bytes);
}

static const struct fake_kernel own[] = {
	{ "fake_fill", 3, fill },
	{ NULL, 0, NULL },
};

static const struct fake_kernel *kernel_named(const struct fake_kernel *table, const char *name)
{
	for (; table->name; table++)
		if (!strcmp(table->name, name))
			return table;
	return NULL;
}

void *fake_ptr(uint64_t device_addr)
{
	struct block *b;
	uint8_t *at;

	pthread_mutex_lock(&fake_lock);
	b = fake_block(running, device_addr, 1);
	at = b ? b->shadow + (device_addr - b->addr) : fake_mapped(running, device_addr, 1);
	pthread_mutex_unlock(&fake_lock);
	if (!at)
		longjmp(stopped, 1);
	return at;
}

int fake_run(struct context *ctx, const struct op *op)
{
	void *args[FAKE_PARAMS_MAX];

	if (fake_modes.badkernel)
		return fake_modes.badkernel;
	for (int i = 0; i < FAKE_PARAMS_MAX; i++)
		args[i] = (void *)&op->args[i];
	running = ctx;
	if (setjmp(stopped))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	op->kernel->run(op->grid, op->block, args);
	return CUDA_SUCCESS;
}

/* The header of a cubin, or NULL if the image is not a cubin. */
static const Elf64_Ehdr *cubin(const void *image)
{
	const Elf64_Ehdr *e = image;

	if (strncmp(image, ELFMAG, SELFMAG) || e->e_ident[EI_CLASS] != ELFCLASS64 || e->e_ident[EI_DATA] != ELFDATA2LSB ||
	    e->e_machine != EM_CUDA || (e->e_shnum && e->e_shentsize != sizeof(Elf64_Shdr)))
		return NULL;
	return e;
}

static size_t larger(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* The tables lie at the end of a cubin. */
static size_t cubin_bytes(const Elf64_Ehdr *e)
{
	return larger(sizeof *e, larger(e->e_shoff + (size_t)e->e_shnum * e->e_shentsize,
					e->e_phoff + (size_t)e->e_phnum * e->e_phentsize));
}

/* A GPU runs code for its own compute capability, which the low byte of the
 * flags names, or for an earlier one of the same major number. The processors of
 * Tegra, 7.2 and 8.7, run only code for their own (CUDA C++ Programming Guide,
 * "Binary Compatibility"). */
static int runs_here(const Elf64_Ehdr *e)
{
	int major = fake_modes.cc_major, minor = fake_modes.cc_minor, sm = e->e_flags & 0xff;
	int is_tegra = (major == 7 && minor == 2) || (major == 8 && minor == 7);

	return sm == 10 * major + minor || (!is_tegra && sm / 10 == major && sm % 10 < minor);
}

/* A kernel's code is a section that is named after the kernel. */
static int cubin_has(const Elf64_Ehdr *e, const char *kernel)
{
	const Elf64_Shdr *sections = (const void *)((const char *)e + e->e_shoff);
	const char *names = e->e_shnum ? (const char *)e + sections[e->e_shstrndx].sh_offset : NULL;
	char wanted[256];

	snprintf(wanted, sizeof wanted, ".text.%s", kernel);
	for (int i = 0; i < e->e_shnum; i++)
		if (!strcmp(names + sections[i].sh_name, wanted))
			return 1;
	return 0;
}

/* The error if an image does not load, or 0; *bytes is how much of it is kept.
 * Nothing is assembled: kernels.c has the code of the kernels. */
static int examine(const void *image, size_t *bytes)
{
	const Elf64_Ehdr *e = image ? cubin(image) : NULL;

	if (!image || (!e && !strstr(image, ".version")))
		return CUDA_ERROR_INVALID_IMAGE;
	if (fake_modes.noload)
		return fake_modes.noload;
	if (!e) {
		*bytes = strlen(image) + 1;
		return fake_modes.nojit;
	}
	*bytes = cubin_bytes(e);
	return runs_here(e) ? fake_modes.nocubin : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

EXPORT int cuModuleLoadData(struct module **out, const void *image)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct module *m;
	size_t bytes = 0;

	if (!ctx)
		return rc;
	if (!ctx->device && (fake_modes.slowload_ms || fake_modes.loadgate[0])) {
		fake_leave(0);
		usleep(fake_modes.slowload_ms * 1000);
		fake_gate(fake_modes.loadgate);
		ctx = fake_enter(&rc);
		if (!ctx)
			return rc;
	}
	rc = examine(image, &bytes);
	if (rc)
		return fake_leave(rc);
	m = calloc(1, sizeof *m);
	if (m)
		m->image = malloc(bytes);
	if (!m || !m->image) {
		free(m);
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	memcpy(m->image, image, bytes);
	m->next = ctx->modules;
	ctx->modules = m;
	*out = m;
	fake_log("module", ctx->device);
	return fake_leave(CUDA_SUCCESS);
}

static int module_has(const struct module *m, const char *kernel)
{
	const Elf64_Ehdr *e = cubin(m->image);

	return e ? cubin_has(e, kernel) : strstr(m->image, kernel) != NULL;
}

static void module_free(struct module *m)
{
	while (m->functions) {
		struct function *f = m->functions;

		m->functions = f->next;
		free(f);
	}
	free(m->image);
	free(m);
}

EXPORT int cuModuleUnload(struct module *m)
{
	int rc;
	struct context *ctx = fake_enter_to_free(&rc);
	struct module **at;

	if (!ctx)
		return rc;
	fake_drain(ctx);
	for (at = &ctx->modules; *at && *at != m; at = &(*at)->next)
		;
	if (!*at)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	*at = m->next;
	module_free(m);
	return fake_leave(rc);
}

/* A kernel must be in kernels.c and be named in the image. */
EXPORT int cuModuleGetFunction(struct function **out, struct module *m, const char *name)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct module *have;
	const struct fake_kernel *k;
	struct function *f;

	if (!ctx)
		return rc;
	for (have = ctx->modules; have && have != m; have = have->next)
		;
	if (!have)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	k = kernel_named(fake_kernels, name);
	if (!k)
		k = kernel_named(own, name);
	if (!k || !module_has(m, name))
		return fake_leave(CUDA_ERROR_NOT_FOUND);
	f = calloc(1, sizeof *f);
	if (!f)
		return fake_leave(CUDA_ERROR_OUT_OF_MEMORY);
	f->kernel = k;
	f->next = m->functions;
	m->functions = f;
	*out = f;
	return fake_leave(CUDA_SUCCESS);
}

static const struct fake_kernel *kernel_of(struct context *ctx, struct function *wanted)
{
	for (struct module *m = ctx->modules; m; m = m->next)
		for (struct function *f = m->functions; f; f = f->next)
			if (f == wanted)
				return f->kernel;
	return NULL;
}

/* Limits: 1024 threads in a block, and 48 KiB of shared memory without
 * cuFuncSetAttribute. */
EXPORT int cuLaunchKernel(struct function *f, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			  unsigned block_y, unsigned block_z, unsigned shared_bytes, struct stream *s, void **params,
			  void **extra)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct op op = { .kind = OP_LAUNCH, .grid = grid_x, .block = block_x };

	if (!ctx)
		return rc;
	op.kernel = kernel_of(ctx, f);
	if (!op.kernel)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	if (!grid_x || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 || block_z != 1 ||
	    grid_x > 0x7fffffff || shared_bytes > 48 << 10 || extra)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	if (fake_modes.badlaunch)
		return fake_leave(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	for (int i = 0; i < op.kernel->params; i++)
		op.args[i] = *(const uint64_t *)params[i];
	if (fake_modes.launches)
		fake_log("launch", ctx->device);
	return fake_leave(fake_queue(ctx, s, &op));
}

void fake_modules_drop(struct context *ctx)
{
	while (ctx->modules) {
		struct module *m = ctx->modules;

		ctx->modules = m->next;
		module_free(m);
	}
}
