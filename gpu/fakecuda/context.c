/* The driver's start, primary contexts, and each thread's stack of them. */
#define _DEFAULT_SOURCE
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_changed = PTHREAD_COND_INITIALIZER;
struct fake_modes fake_modes;
int fake_failed;

static struct context contexts[FAKE_GPUS_MAX];
static int started;

enum { STACK_MAX = 8 };
static __thread struct context *stack[STACK_MAX];
static __thread int depth;

int fake_leave(int rc)
{
	pthread_mutex_unlock(&fake_lock);
	return rc;
}

void fake_log(const char *what, int device)
{
	FILE *f = fake_modes.log[0] ? fopen(fake_modes.log, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %d\n", what, device);
	fclose(f);
}

/* Waits for a file, if there is a path. It also returns when the file that
 * marks the wait is removed, as at a test's end. */
void fake_gate(const char *path)
{
	char asked[300];
	FILE *f;

	if (!*path)
		return;
	snprintf(asked, sizeof asked, "%s.asked", path);
	f = fopen(asked, "w");
	if (f)
		fclose(f);
	while (access(path, F_OK) && !access(asked, F_OK))
		usleep(1000);
}

struct context *fake_context(int device)
{
	return device >= 0 && device < fake_modes.gpus ? &contexts[device] : NULL;
}

static int enter(void)
{
	pthread_mutex_lock(&fake_lock);
	return started ? CUDA_SUCCESS : fake_leave(CUDA_ERROR_NOT_INITIALIZED);
}

struct context *fake_enter(int *rc)
{
	struct context *ctx = depth ? stack[depth - 1] : NULL;

	*rc = enter();
	if (*rc)
		return NULL;
	if (!ctx || !ctx->retained)
		*rc = CUDA_ERROR_INVALID_CONTEXT;
	else
		*rc = fake_failed;
	if (!*rc)
		return ctx;
	fake_leave(0);
	return NULL;
}

struct context *fake_enter_to_free(int *rc)
{
	struct context *ctx = depth ? stack[depth - 1] : NULL;

	*rc = enter();
	if (*rc)
		return NULL;
	if (ctx && ctx->retained) {
		*rc = fake_failed;
		return ctx;
	}
	*rc = CUDA_ERROR_INVALID_CONTEXT;
	fake_leave(0);
	return NULL;
}

EXPORT int cuInit(unsigned flags)
{
	pthread_mutex_lock(&fake_lock);
	if (flags)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	fake_modes_read(&fake_modes);
	started = fake_modes.init == CUDA_SUCCESS;
	for (int i = 0; i < FAKE_GPUS_MAX; i++)
		contexts[i].device = i;
	return fake_leave(fake_modes.init);
}

EXPORT int cuDevicePrimaryCtxRetain(struct context **out, int device)
{
	struct context *ctx;
	int rc;

	if (!device) {
		usleep(fake_modes.slowopen_ms * 1000);
		fake_gate(fake_modes.opengate);
	}
	rc = enter();
	if (rc)
		return rc;
	ctx = fake_context(device);
	if (!ctx)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	if (fake_failed)
		return fake_leave(fake_failed);
	if (fake_modes.prohibited)
		return fake_leave(CUDA_ERROR_DEVICE_UNAVAILABLE);
	if (!ctx->retained++)
		fake_log("context", device);
	*out = ctx;
	return fake_leave(CUDA_SUCCESS);
}

static int count(const void *list)
{
	/* Every object begins with the pointer to the next. */
	int n = 0;

	for (; list; list = *(void *const *)list)
		n++;
	return n;
}

static void tell_leaks(const struct context *ctx)
{
	int blocks = count(ctx->blocks), pins = count(ctx->pins), events = count(ctx->events);
	int modules = count(ctx->modules), streams = count(ctx->streams) - (ctx->null_stream != NULL);
	const char *leaks = getenv("GDRCP_FAKE_CUDA_LEAKS");

	if (!(blocks | pins | events | modules | streams))
		return;
	fprintf(stderr,
		"fake libcuda: GPU %d is released with %d allocations, %d registrations, %d streams, %d events, %d modules\n",
		ctx->device, blocks, pins, streams, events, modules);
	if (leaks && !strcmp(leaks, "abort"))
		abort();
}

/* The last release destroys the context and everything in it. */
EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	struct context *ctx;
	int rc = enter();

	if (rc)
		return rc;
	ctx = fake_context(device);
	if (!ctx)
		return fake_leave(CUDA_ERROR_INVALID_DEVICE);
	if (!ctx->retained)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	if (ctx->retained > 1) {
		ctx->retained--;
		return fake_leave(fake_failed);
	}
	tell_leaks(ctx);
	fake_drain(ctx);
	ctx->retained = 0;
	fake_streams_drop(ctx);
	fake_memory_drop(ctx);
	fake_modules_drop(ctx);
	fake_log("end", device);
	return fake_leave(fake_failed);
}

EXPORT int cuCtxPushCurrent_v2(struct context *ctx)
{
	int rc = enter();

	if (rc)
		return rc;
	if (ctx < contexts || ctx >= contexts + FAKE_GPUS_MAX || !ctx->retained || depth == STACK_MAX)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	stack[depth++] = ctx;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuCtxPopCurrent_v2(struct context **out)
{
	int rc = enter();

	if (rc)
		return rc;
	if (!depth)
		return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
	*out = stack[--depth];
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	int rc;

	if (!fake_enter(&rc))
		return rc;
	if (target != 0 || (scope != 100 && scope != 200))
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	return fake_leave(fake_modes.flush ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
}
