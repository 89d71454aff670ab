/* Streams, each with a thread that does its work in order, and events. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct stream {
	struct stream *next;
	struct context *ctx;
	struct op *first, **last; /* the first remains while it runs */
	int destroyed;
};

struct event {
	struct event *next;
	struct context *ctx;
	uint64_t recorded, done; /* tickets */
	int users;               /* records queued, and threads that wait */
	int destroyed;
};

/* Whether kernels hang: all of them, or those that begin once hangfile
 * exists, until it is gone. */
static int fake_hangs(void)
{
	return fake_modes.hang || (fake_modes.hangfile[0] && !access(fake_modes.hangfile, F_OK));
}

static void pass(int ms)
{
	struct timespec t = { .tv_nsec = ms % 1000 * 1000000L, .tv_sec = ms / 1000 };

	if (ms)
		nanosleep(&t, NULL);
}

static void perform(struct context *ctx, const struct op *op, int *rc)
{
	pass(fake_modes.late_ms);
	switch (op->kind) {
	case OP_COPY:
		memmove(op->dst, op->src, op->bytes);
		break;
	case OP_FILL:
		memset(op->dst, op->value, op->bytes);
		break;
	case OP_LAUNCH:
		while (fake_hangs())
			usleep(1000);
		*rc = fake_run(ctx, op);
		break;
	case OP_VALUE:
		if (!fake_modes.lostvalue)
			__atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE);
		break;
	case OP_RECORD:
		break;
	}
}

static void event_drop(struct event *e)
{
	if (!e->users && e->destroyed)
		free(e);
}

/* Removes an operation from the context's list, near its front. */
static void forget(struct context *ctx, const struct op *op)
{
	struct op **at = &ctx->oldest;

	while (*at != op)
		at = &(*at)->later;
	*at = op->later;
	if (!*at)
		ctx->newest = at;
}

static void finish(struct stream *s, struct op *op, int rc)
{
	if (op->event) {
		op->event->done = op->ticket;
		op->event->users--;
		event_drop(op->event);
	}
	if (rc && !fake_failed)
		fake_failed = rc;
	s->first = op->next;
	if (!s->first)
		s->last = &s->first;
	forget(s->ctx, op);
	free(op);
	pthread_cond_broadcast(&fake_changed);
}

/* After an error no more work runs. */
static void *work(void *arg)
{
	struct stream *s = arg;

	pthread_mutex_lock(&fake_lock);
	while (s->first || !s->destroyed) {
		struct op *op = s->first;
		int rc = fake_failed;

		if (!op) {
			pthread_cond_wait(&fake_changed, &fake_lock);
			continue;
		}
		pthread_mutex_unlock(&fake_lock);
		if (!rc)
			perform(s->ctx, op, &rc);
		pthread_mutex_lock(&fake_lock);
		finish(s, op, rc);
	}
	pthread_mutex_unlock(&fake_lock);
	free(s);
	return NULL;
}

static struct stream *stream_make(struct context *ctx)
{
	struct stream *s = calloc(1, sizeof *s);
	pthread_t thread;

	if (!s)
		return NULL;
	s->ctx = ctx;
	s->last = &s->first;
	if (pthread_create(&thread, NULL, work, s)) {
		free(s);
		return NULL;
	}
	pthread_detach(thread);
	s->next = ctx->streams;
	ctx->streams = s;
	return s;
}

/* The stream s, or the default stream if s is NULL; NULL if s is not a stream. */
static struct stream *stream_of(struct context *ctx, struct stream *s)
{
	struct stream *have = ctx->streams;

	if (!s) {
		if (!ctx->null_stream)
			ctx->null_stream = stream_make(ctx);
		return ctx->null_stream;
	}
	while (have && have != s)
		have = have->next;
	return have;
}

/* The thread ends, and frees s, when it has done the queued work. */
static void stream_end(struct stream *s)
{
	struct stream **at = &s->ctx->streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	s->destroyed = 1;
	pthread_cond_broadcast(&fake_changed);
}

int fake_queue(struct context *ctx, struct stream *s, const struct op *op)
{
	struct op *copy;

	s = stream_of(ctx, s);
	if (!s)
		return CUDA_ERROR_INVALID_HANDLE;
	copy = malloc(sizeof *copy);
	if (!copy)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*copy = *op;
	copy->next = NULL;
	*s->last = copy;
	s->last = &copy->next;
	copy->later = NULL;
	copy->number = ++ctx->queued;
	if (!ctx->oldest)
		ctx->newest = &ctx->oldest;
	*ctx->newest = copy;
	ctx->newest = &copy->later;
	pthread_cond_broadcast(&fake_changed);
	return CUDA_SUCCESS;
}

void fake_drain(struct context *ctx)
{
	uint64_t last = ctx->queued;

	while (ctx->oldest && ctx->oldest->number <= last)
		pthread_cond_wait(&fake_changed, &fake_lock);
}

/* Whether a kernel got an address of the host memory. */
static int launched_with(const struct op *op, const uint8_t *mem, size_t bytes)
{
	uint64_t at = (uintptr_t)mem + FAKE_MAPPED_OFFSET;

	for (int i = 0; op->kind == OP_LAUNCH && i < op->kernel->params; i++)
		if (op->args[i] >= at && op->args[i] - at < bytes)
			return 1;
	return 0;
}

int fake_host_in_use(struct context *ctx, const uint8_t *mem, size_t bytes)
{
	for (struct stream *s = ctx->streams; s; s = s->next)
		for (struct op *op = s->first; op; op = op->next)
			if ((op->host && op->host < mem + bytes && mem < op->host + op->bytes) ||
			    launched_with(op, mem, bytes))
				return 1;
	return 0;
}

EXPORT int cuStreamCreate(struct stream **out, unsigned flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);

	if (!ctx)
		return rc;
	/* Streams that wait for the default stream are not imitated. */
	if (flags != 1 /* NON_BLOCKING */)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	*out = stream_make(ctx);
	return fake_leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* Like the driver, does not wait for the work. */
EXPORT int cuStreamDestroy_v2(struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter_to_free(&rc);

	if (!ctx)
		return rc;
	if (!s || s == ctx->null_stream || !stream_of(ctx, s))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	stream_end(s);
	return fake_leave(rc);
}

EXPORT int cuStreamSynchronize(struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter(&rc);

	if (!ctx)
		return rc;
	s = stream_of(ctx, s);
	if (!s)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	while (stream_of(ctx, s) && s->first)
		pthread_cond_wait(&fake_changed, &fake_lock);
	return fake_leave(fake_failed);
}

EXPORT int cuStreamQuery(struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter(&rc);

	if (!ctx)
		return rc;
	s = stream_of(ctx, s);
	if (!s)
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	return fake_leave(s->first ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

/* Device memory in the fake's own mapping; NULL if no block has all of the
 * range. */
static uint8_t *shadow_of(struct context *ctx, uint64_t addr, size_t bytes)
{
	struct block *b = fake_block(ctx, addr, bytes);

	return b ? b->shadow + (addr - b->addr) : NULL;
}

enum direction { TO_DEVICE, TO_HOST };

static int copy_host(enum direction to, uint64_t addr, void *host, size_t bytes, struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct op op = { .kind = OP_COPY, .bytes = bytes, .host = host };
	uint8_t *device;

	if (!ctx)
		return rc;
	device = shadow_of(ctx, addr, bytes);
	if (!device || !host)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	op.dst = to == TO_HOST ? host : device;
	op.src = to == TO_HOST ? device : host;
	rc = fake_check_host(ctx, host, bytes);
	return fake_leave(rc ? rc : fake_queue(ctx, s, &op));
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct stream *s)
{
	return copy_host(TO_DEVICE, dst, (void *)src, bytes, s);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct stream *s)
{
	return copy_host(TO_HOST, src, dst, bytes, s);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t dst, uint64_t src, size_t bytes, struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct op op = { .kind = OP_COPY, .bytes = bytes };

	if (!ctx)
		return rc;
	op.src = shadow_of(ctx, src, bytes);
	op.dst = shadow_of(ctx, dst, bytes);
	return fake_leave(op.src && op.dst ? fake_queue(ctx, s, &op) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cuStreamWriteValue32_v2(struct stream *s, uint64_t addr, uint32_t value, unsigned flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct op op = { .kind = OP_VALUE, .bytes = sizeof value, .value = value };

	if (!ctx)
		return rc;
	if (fake_modes.novalue)
		return fake_leave(CUDA_ERROR_NOT_SUPPORTED);
	op.dst = fake_mapped(ctx, addr, sizeof value);
	op.host = op.dst;
	return fake_leave(op.dst && addr % 4 == 0 && !flags ? fake_queue(ctx, s, &op) : CUDA_ERROR_INVALID_VALUE);
}

EXPORT int cuMemsetD8_v2(uint64_t dst, uint8_t value, size_t bytes)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct op op = { .kind = OP_FILL, .bytes = bytes, .value = value };

	if (!ctx)
		return rc;
	op.dst = shadow_of(ctx, dst, bytes);
	return fake_leave(op.dst ? fake_queue(ctx, NULL, &op) : CUDA_ERROR_INVALID_VALUE);
}

static int is_event(struct context *ctx, struct event *e)
{
	struct event *have = ctx->events;

	while (have && have != e)
		have = have->next;
	return have != NULL;
}

EXPORT int cuEventCreate(struct event **out, unsigned flags)
{
	int rc;
	struct context *ctx = fake_enter(&rc);
	struct event *e;

	if (!ctx)
		return rc;
	e = flags & ~3u ? NULL : calloc(1, sizeof *e);
	if (!e)
		return fake_leave(CUDA_ERROR_INVALID_VALUE);
	e->ctx = ctx;
	e->next = ctx->events;
	ctx->events = e;
	*out = e;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuEventRecord(struct event *e, struct stream *s)
{
	int rc;
	struct context *ctx = fake_enter(&rc);

	if (!ctx)
		return rc;
	if (!is_event(ctx, e))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	rc = fake_queue(ctx, s, &(struct op){ .kind = OP_RECORD, .event = e, .ticket = e->recorded + 1 });
	if (rc)
		return fake_leave(rc);
	e->recorded++;
	e->users++;
	return fake_leave(CUDA_SUCCESS);
}

EXPORT int cuEventQuery(struct event *e)
{
	int rc;
	struct context *ctx = fake_enter(&rc);

	if (!ctx)
		return rc;
	if (!is_event(ctx, e))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	return fake_leave(e->done < e->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

static void event_end(struct event *e)
{
	struct event **at = &e->ctx->events;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	e->destroyed = 1;
	event_drop(e);
}

EXPORT int cuEventDestroy_v2(struct event *e)
{
	int rc;
	struct context *ctx = fake_enter_to_free(&rc);

	if (!ctx)
		return rc;
	if (!is_event(ctx, e))
		return fake_leave(CUDA_ERROR_INVALID_HANDLE);
	event_end(e);
	return fake_leave(rc);
}

void fake_streams_drop(struct context *ctx)
{
	while (ctx->events)
		event_end(ctx->events);
	while (ctx->streams)
		stream_end(ctx->streams);
	ctx->null_stream = NULL;
}
