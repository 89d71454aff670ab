//go:build linux && cgo

#define _GNU_SOURCE
#include "table.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int vb_rail_open(const struct vb_api *api, struct abi_context *ctx, int cqe, int vector, int slots,
		 uint32_t msg_bytes, struct vb_rail **out)
{
	struct vb_rail *r = calloc(1, sizeof *r + (size_t)slots * sizeof r->qp[0]);
	int err;

	if (!r)
		return -ENOMEM;
	r->api = api;
	r->ctx = ctx;
	r->slots = slots;
	r->msg_bytes = msg_bytes;
	errno = 0;
	r->pd = api->ibv_alloc_pd(ctx);
	if (r->pd)
		r->channel = api->ibv_create_comp_channel(ctx);
	if (r->channel)
		r->cq = api->ibv_create_cq(ctx, cqe, NULL, r->channel, vector);
	err = r->cq ? vb_nonblocking(r->channel->fd) : -(errno ? errno : EIO);
	if (err) {
		vb_rail_close(r);
		return err;
	}
	*out = r;
	return 0;
}

int vb_rail_close(struct vb_rail *r)
{
	int err = 0, rc;

	if (r->cq && (rc = r->api->ibv_destroy_cq(r->cq)))
		err = rc;
	if (r->channel && (rc = r->api->ibv_destroy_comp_channel(r->channel)) && !err)
		err = rc;
	if (r->pd && (rc = r->api->ibv_dealloc_pd(r->pd)) && !err)
		err = rc;
	free(r);
	return vb_negative(err);
}

int vb_pad_open(const struct vb_api *api, struct abi_context *ctx, int cqe, struct abi_cq **out)
{
	errno = 0;
	*out = api->ibv_create_cq(ctx, cqe, NULL, NULL, 0);
	return *out ? 0 : -(errno ? errno : EIO);
}

void vb_pad_close(const struct vb_api *api, struct abi_cq *cq)
{
	api->ibv_destroy_cq(cq);
}

int vb_rail_fd(const struct vb_rail *r)
{
	return r->channel->fd;
}

const struct abi_cq *vb_rail_cq(const struct vb_rail *r)
{
	return r->cq;
}

/* Reads the tag that every Send of this package begins with. */
static void untag(const struct vb_qp *q, const struct abi_wc *wc, struct vb_comp *c, uint8_t *msg)
{
	const uint8_t *buf = q->mem + (size_t)c->seq * q->stride;
	uint32_t imm;

	c->kind = VB_MALFORMED;
	if (wc->byte_len < VB_TAG_BYTES || wc->byte_len > VB_TAG_BYTES + q->rail->msg_bytes)
		return;
	memcpy(&imm, buf + 4, 4);
	c->imm = be32toh(imm);
	switch (buf[0]) {
	case VB_MESSAGE:
		c->kind = VB_MESSAGE;
		c->len = wc->byte_len - VB_TAG_BYTES;
		memcpy(msg, buf + VB_TAG_BYTES, c->len);
		break;
	case VB_IMM_BY_SEND:
	case VB_GREETING:
	case VB_NUDGE:
		c->kind = buf[0];
	}
}

static struct vb_qp *owner(const struct vb_rail *r, uint64_t wr_id)
{
	int slot = wr_id >> 32 & 0xfff;
	struct vb_qp *q = slot < r->slots ? r->qp[slot] : NULL;

	/* A completion may outlive its queue pair: destroying one does not
	 * take its entries out of every device's completion queue. */
	return q && (q->generation & 0xffff) == (int)(wr_id >> 44 & 0xffff) ? q : NULL;
}

static int stopped(const struct vb_qp *q)
{
	return __atomic_load_n(&q->stopped, __ATOMIC_RELAXED);
}

static void report(struct vb_qp *q, const struct abi_wc *wc, struct vb_comp *c, uint8_t *msg)
{
	*c = (struct vb_comp){ .slot = (uint16_t)q->slot, .seq = (uint32_t)wc->wr_id };
	if (wc->wr_id >> 60 == VB_ID_RECV) {
		c->flags = VB_RECV_SIDE;
		q->recvs_posted--;
		if (q->recvs_posted == 0 && (wc->status || stopped(q)))
			c->flags |= VB_RECVS_GONE;
	}
	if (wc->status) {
		c->kind = VB_FAILED;
		c->status = (uint32_t)wc->status;
		c->vendor_err = wc->vendor_err;
	} else if (!(c->flags & VB_RECV_SIDE)) {
		c->kind = VB_SENT;
	} else if (wc->wc_flags & ABI_WC_WITH_IMM) {
		c->kind = VB_IMMEDIATE;
		c->imm = be32toh(wc->imm_data);
		c->len = wc->byte_len;
	} else {
		untag(q, wc, c, msg);
	}
}

/* Polls once. It drops entries of destroyed queue pairs, and of parts of an
 * operation. It posts receives again before anything is reported, so that the
 * caller may allow the peer to send again. */
static int poll_once(struct vb_rail *r, struct vb_comp *out, int max, uint8_t *msgs,
		     struct vb_polled *polled)
{
	struct abi_wc wc[VB_BATCH];
	struct abi_recv_wr again[VB_BATCH];
	struct abi_sge sge[VB_BATCH];
	int told = 0;
	int n;

	if (max > VB_BATCH)
		max = VB_BATCH;
	n = r->cq->context->ops.poll_cq(r->cq, max, wc);
	if (n < 0)
		return -EIO;
	polled->entries += n;
	polled->emptied = n < max;
	for (int i = 0; i < n; i++) {
		struct vb_qp *q = owner(r, wc[i].wr_id);

		if (!q || (wc[i].wr_id >> 60 == VB_ID_PART && !wc[i].status))
			continue;
		report(q, &wc[i], &out[told], msgs + (size_t)told * r->msg_bytes);
		if ((out[told].flags & VB_RECV_SIDE) && !wc[i].status &&
		    !stopped(q)) {
			vb_recv_fill(q, out[told].seq, &again[told], &sge[told]);
			if (q->again_first)
				q->again_last->next = &again[told];
			else
				q->again_first = &again[told];
			q->again_last = &again[told];
		}
		told++;
	}
	for (int i = 0; i < told; i++) {
		struct vb_qp *q = r->qp[out[i].slot];
		struct abi_recv_wr *first = q->again_first;

		q->again_first = q->again_last = NULL;
		if (first && vb_recv_post(q, first))
			out[i].flags |= VB_REPOST_FAILED;
	}
	return told;
}

/* Polls until there is something to report, or the queue is empty. */
static int poll_some(struct vb_rail *r, struct vb_comp *out, int max, uint8_t *msgs,
		     struct vb_polled *polled)
{
	int before, n;

	do {
		before = polled->entries;
		n = poll_once(r, out, max, msgs, polled);
	} while (n == 0 && polled->entries > before);
	return n;
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

int vb_rail_poll(struct vb_rail *r, struct vb_comp *out, int max, uint8_t *msgs, int spin_us, int arm,
		 struct vb_polled *polled)
{
	int n, err;

	*polled = (struct vb_polled){ 0 };
	n = poll_some(r, out, max, msgs, polled);
	if (n == 0 && spin_us > 0) {
		int64_t end = now_ns() + (int64_t)spin_us * 1000;

		do {
			for (int i = 0; i < 16; i++)
				relax();
			n = poll_some(r, out, max, msgs, polled);
		} while (n == 0 && now_ns() < end);
	}
	if (n || !arm || r->armed)
		return n;
	err = r->cq->context->ops.req_notify_cq(r->cq, 0);
	if (err)
		return vb_negative(err);
	r->armed = 1;
	/* Completions between the poll and the arming raise no event. */
	return poll_some(r, out, max, msgs, polled);
}

int vb_rail_event(struct vb_rail *r)
{
	struct abi_cq *cq;
	void *context;

	errno = 0;
	if (r->api->ibv_get_cq_event(r->channel, &cq, &context))
		return -(errno ? errno : EIO);
	r->api->ibv_ack_cq_events(cq, 1);
	r->armed = 0;
	return 0;
}

int vb_mr_register(struct vb_rail *r, uint64_t addr, size_t bytes, int access, struct abi_mr **out)
{
	errno = 0;
	if (!(access & ABI_ACCESS_RELAXED_ORDERING)) {
		*out = r->api->ibv_reg_mr(r->pd, (void *)(uintptr_t)addr, bytes, access);
	} else if (r->api->ibv_reg_mr_iova2) {
		/* Omits the flag if the kernel does not support it; ibv_reg_mr would fail then. */
		*out = r->api->ibv_reg_mr_iova2(r->pd, (void *)(uintptr_t)addr, bytes, addr, access);
	} else {
		*out = NULL;
		errno = EOPNOTSUPP;
	}
	return *out ? 0 : -(errno ? errno : EIO);
}

int vb_can_import(const struct vb_api *api)
{
	return api->ibv_reg_dmabuf_mr != NULL;
}

int vb_mr_import(struct vb_rail *r, int fd, uint64_t offset, size_t bytes, uint64_t addr, int access,
		 struct abi_mr **out)
{
	errno = 0;
	*out = r->api->ibv_reg_dmabuf_mr(r->pd, offset, bytes, addr, fd, access);
	return *out ? 0 : -(errno ? errno : EIO);
}

int vb_mr_deregister(const struct vb_api *api, struct abi_mr *mr)
{
	return vb_negative(api->ibv_dereg_mr(mr));
}
