/* Tests only. A libibverbs whose devices fail as VERBS_FAULTS says, a list of these with commas:
 *   dev=NAME      only that device (else every one)
 *   wc=STATUS@N   the Nth completion that succeeds, and all after it, have that status (enum ibv_wc_status)
 *   mute=N        no completion comes from the Nth on
 *   post=ERRNO@N  the Nth list of work requests to send, and all after it, are refused
 *   reg=ERRNO@BYTES  no region of more than so many bytes can be registered
 * It depends on the real one, where a program that opens it by name (GDRCP_LIBIBVERBS) finds everything else:
 *   cc -shared -fPIC -o libverbs-faults.so verbs_faults.c -Wl,--version-script=verbs_faults.map -libverbs */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef ibv_reg_mr

/* fault reads "KEY=VALUE@AT". */
static int fault(struct ibv_context *ctx, const char *key, long *value, long *at)
{
	char list[256], *rest, *item, *to;
	int found = 0;

	snprintf(list, sizeof list, "%s", getenv("VERBS_FAULTS") ? getenv("VERBS_FAULTS") : "");
	for (item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
		to = strchr(item, '=');
		if (!to)
			continue;
		*to++ = 0;
		if (!strcmp(item, "dev") && strcmp(to, ibv_get_device_name(ctx->device)))
			return 0;
		if (!strcmp(item, key)) {
			*value = strtol(to, &to, 0);
			*at = *to == '@' ? strtol(to + 1, NULL, 0) : *value;
			found = 1;
		}
	}
	return found;
}

/* The functions of a device's own provider, by context. */
static struct own {
	struct ibv_context *ctx;
	struct ibv_context_ops ops;
} owns[16];

static struct ibv_context_ops *own(struct ibv_context *ctx)
{
	for (size_t i = 0; i < sizeof owns / sizeof *owns; i++)
		if (__atomic_load_n(&owns[i].ctx, __ATOMIC_ACQUIRE) == ctx)
			return &owns[i].ops;
	abort();
}

static long completions, posts;

static int poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int got = own(cq->context)->poll_cq(cq, n, wc), kept = 0;
	long status = 0, at = 0;
	int mutes = fault(cq->context, "mute", &status, &at);

	if (!mutes && !fault(cq->context, "wc", &status, &at))
		return got;
	for (int i = 0; i < got; i++) {
		int hit = wc[i].status == IBV_WC_SUCCESS && __atomic_add_fetch(&completions, 1, __ATOMIC_SEQ_CST) >= at;

		if (hit && mutes)
			continue;
		if (hit)
			wc[i].status = status;
		wc[kept++] = wc[i];
	}
	return got < 0 ? got : kept;
}

static int post(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	long error, at;

	if (fault(qp->context, "post", &error, &at) && __atomic_add_fetch(&posts, 1, __ATOMIC_SEQ_CST) >= at) {
		*bad = wr;
		return error;
	}
	return own(qp->context)->post_send(qp, wr, bad);
}

/* real is a function of the real libibverbs. */
static void *real(const char *name, const char *version)
{
	static void *lib;

	if (!lib)
		lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	return dlvsym(lib, name, version);
}

/* A completion queue comes before all that is posted. */
struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *data, struct ibv_comp_channel *channel, int vector)
{
	struct ibv_cq *(*f)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int) = real("ibv_create_cq", "IBVERBS_1.1");
	static char lock;

	while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
		;
	for (size_t i = 0; ctx->ops.poll_cq != poll && i < sizeof owns / sizeof *owns; i++)
		if (!owns[i].ctx) {
			owns[i].ops = ctx->ops;
			__atomic_store_n(&owns[i].ctx, ctx, __ATOMIC_RELEASE);
			ctx->ops.post_send = post;
			ctx->ops.poll_cq = poll;
		}
	__atomic_clear(&lock, __ATOMIC_RELEASE);
	return f(ctx, cqe, data, channel, vector);
}

static int refuses(struct ibv_pd *pd, size_t length)
{
	long error, most;

	if (!fault(pd->context, "reg", &error, &most) || length <= (size_t)most)
		return 0;
	errno = error;
	return 1;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *(*f)(struct ibv_pd *, void *, size_t, int) = real("ibv_reg_mr", "IBVERBS_1.1");

	return refuses(pd, length) ? NULL : f(pd, addr, length, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	struct ibv_mr *(*f)(struct ibv_pd *, void *, size_t, uint64_t, unsigned int) = real("ibv_reg_mr_iova2", "IBVERBS_1.8");

	return refuses(pd, length) ? NULL : f(pd, addr, length, iova, access);
}
