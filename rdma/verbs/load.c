//go:build linux && cgo

#define _GNU_SOURCE
#include "table.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *open_library(const char *name, struct vb_load_error *err)
{
	void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		const char *why = dlerror();

		err->kind = VB_NO_LIBRARY;
		snprintf(err->library, sizeof err->library, "%s", name);
		snprintf(err->reason, sizeof err->reason, "%s", why ? why : "unknown reason");
	}
	return lib;
}

/* Looks up a particular version, because libibverbs keeps an older function of
 * the same name with another layout under IBVERBS_1.0. */
static void *find(void *lib, const char *name, const char *symbol, const char *version,
		  struct vb_load_error *err)
{
	void *found = dlvsym(lib, symbol, version);

	if (!found && !err->kind) {
		const char *why = dlerror();

		err->kind = VB_NO_SYMBOL;
		snprintf(err->library, sizeof err->library, "%s", name);
		snprintf(err->symbol, sizeof err->symbol, "%s", symbol);
		snprintf(err->version, sizeof err->version, "%s", version);
		snprintf(err->reason, sizeof err->reason, "%s", why ? why : "unknown reason");
	}
	return found;
}

/* The libraries remain open for the life of the process: librdmacm keeps the
 * devices open, and the kernel's objects with them. */
int vb_load(const char *libibverbs, const char *librdmacm, struct vb_api **out,
	    struct vb_load_error *err)
{
	struct vb_api *api;
	void *verbs, *rdmacm;

	memset(err, 0, sizeof *err);
	verbs = open_library(libibverbs, err);
	if (!verbs)
		return -ENOENT;
	rdmacm = open_library(librdmacm, err);
	if (!rdmacm)
		return -ENOENT;
	api = calloc(1, sizeof *api);
	if (!api)
		return -ENOMEM;
#define FIND_1_1(ret, name, args) api->name = find(verbs, libibverbs, #name, "IBVERBS_1.1", err);
#define FIND_1_0(ret, name, args) api->name = find(verbs, libibverbs, #name, "IBVERBS_1.0", err);
#define FIND_1_8(ret, name, args) api->name = dlvsym(verbs, #name, "IBVERBS_1.8");
#define FIND_1_12(ret, name, args) api->name = dlvsym(verbs, #name, "IBVERBS_1.12");
#define FIND_CM(ret, name, args) api->name = find(rdmacm, librdmacm, #name, "RDMACM_1.0", err);
	VB_VERBS_1_1(FIND_1_1)
	VB_VERBS_1_0(FIND_1_0)
	VB_VERBS_1_8(FIND_1_8)
	VB_VERBS_1_12(FIND_1_12)
	VB_RDMACM_1_0(FIND_CM)
	if (err->kind) {
		free(api);
		return -ENOSYS;
	}
	*out = api;
	return 0;
}

int vb_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}
