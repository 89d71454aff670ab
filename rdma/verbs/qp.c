//go:build linux && cgo

#define _GNU_SOURCE
#include "table.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The maximum number of work requests in one ibv_post_send. */
enum { POST_BATCH = 64 };

/* The inline sizes to request from a device, until it grants one: the header of
 * a chunk has some 160 bytes, and siw allows 80. */
static const uint32_t inline_sizes[] = { 192, 64, 0 };

void vb_recv_fill(const struct vb_qp *q, uint32_t index, struct abi_recv_wr *wr, struct abi_sge *sge)
{
	*sge = (struct abi_sge){
		.addr = (uintptr_t)(q->mem + (size_t)index * q->stride),
		.length = VB_TAG_BYTES + q->rail->msg_bytes,
		.lkey = q->mr->lkey,
	};
	*wr = (struct abi_recv_wr){
		.wr_id = vb_wr_id(VB_ID_RECV, q->generation, q->slot, index),
		.sg_list = sge,
		.num_sge = 1,
	};
}

int vb_recv_post(struct vb_qp *q, struct abi_recv_wr *first)
{
	struct abi_recv_wr *bad = NULL;
	int err = q->qp->context->ops.post_recv(q->qp, first, &bad);

	for (struct abi_recv_wr *w = first; w && !(err && w == bad); w = w->next)
		q->recvs_posted++;
	return vb_negative(err);
}

static int post_receives(struct vb_qp *q)
{
	struct abi_recv_wr wr[POST_BATCH];
	struct abi_sge sge[POST_BATCH];
	int done = 0;

	while (done < q->recvs) {
		int n = q->recvs - done < POST_BATCH ? q->recvs - done : POST_BATCH;
		int err;

		for (int i = 0; i < n; i++) {
			vb_recv_fill(q, (uint32_t)(done + i), &wr[i], &sge[i]);
			if (i)
				wr[i - 1].next = &wr[i];
		}
		err = vb_recv_post(q, wr);
		if (err)
			return err;
		done += n;
	}
	return 0;
}

/* Makes the queue pair, with less inline data or a shorter send queue if the
 * device refuses the request. */
static int create(struct vb_qp *q, struct vb_qp_config *cfg)
{
	struct vb_rail *r = q->rail;
	const uint32_t *inline_bytes = inline_sizes;

	for (;;) {
		struct abi_qp_init_attr a = {
			.send_cq = r->cq,
			.recv_cq = r->cq,
			.qp_type = ABI_QPT_RC,
			.cap = {
				.max_send_wr = (uint32_t)cfg->sends,
				.max_recv_wr = (uint32_t)cfg->recvs,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = *inline_bytes,
			},
		};

		errno = 0;
		if (!r->api->rdma_create_qp(q->id, r->pd, &a)) {
			q->qp = q->id->qp;
			/* Some drivers create it but grant less (hns, i40iw),
			 * and then refuse work requests with more. */
			q->inline_bytes = a.cap.max_inline_data < *inline_bytes ? a.cap.max_inline_data : *inline_bytes;
			return 0;
		}
		/* bnxt_re refuses too large a size without setting errno
		 * (rdma-core up to 60, bnxt_re_check_qp_limits). */
		if (!errno)
			errno = EINVAL;
		/* Drivers refuse inline data with various errors. */
		if (*inline_bytes)
			inline_bytes++;
		else if ((errno != EINVAL && errno != ENOMEM) || cfg->sends <= cfg->least_sends)
			return -errno;
		else if (cfg->sends / 2 > cfg->least_sends)
			cfg->sends /= 2;
		else
			cfg->sends = cfg->least_sends;
	}
}

int vb_qp_open(struct vb_rail *r, struct abi_cm_id *id, struct vb_qp_config *cfg, struct vb_qp **out)
{
	struct vb_qp *q = calloc(1, sizeof *q);
	int err = -ENOMEM;

	if (!q)
		return err;
	q->rail = r;
	q->id = id;
	q->slot = cfg->slot;
	q->generation = cfg->generation;
	q->ops = cfg->ops;
	q->recvs = cfg->recvs;
	q->split_bytes = cfg->split_bytes;
	q->signal_bytes = cfg->signal_bytes;
	q->stride = (VB_TAG_BYTES + r->msg_bytes + 63) & ~UINT32_C(63);
	q->mem_bytes = (size_t)(q->recvs + q->ops) * q->stride;
	q->op = calloc((size_t)q->ops, sizeof *q->op);
	q->mem = mmap(NULL, q->mem_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (q->mem == MAP_FAILED)
		q->mem = NULL;
	if (q->op && q->mem)
		err = vb_mr_register(r, (uintptr_t)q->mem, q->mem_bytes, ABI_ACCESS_LOCAL_WRITE, &q->mr);
	if (!err)
		err = create(q, cfg);
	if (!err)
		err = post_receives(q);
	if (err) {
		vb_qp_close(q);
		return err;
	}
	*out = q;
	return 0;
}

struct vb_op *vb_qp_ops(const struct vb_qp *q)
{
	return q->op;
}

static uint8_t *send_buffer(const struct vb_qp *q, uint32_t seq)
{
	return q->mem + (size_t)(q->recvs + (int)(seq % (uint32_t)q->ops)) * q->stride;
}

uint8_t *vb_qp_buffers(const struct vb_qp *q, uint32_t *stride)
{
	*stride = q->stride;
	return send_buffer(q, 0);
}

uint32_t vb_qp_num(const struct vb_qp *q)
{
	return q->qp->qp_num;
}

/* A sequence of work requests for one ibv_post_send. */
struct run {
	struct vb_qp *q;
	int n;
	struct abi_send_wr wr[POST_BATCH];
	struct abi_sge sge[POST_BATCH];
};

static int run_post(struct run *run)
{
	struct abi_send_wr *bad = NULL;
	int n = run->n;
	int err;

	run->n = 0;
	if (!n)
		return 0;
	run->wr[n - 1].next = NULL;
	errno = 0;
	err = run->q->qp->context->ops.post_send(run->q->qp, run->wr, &bad);
	/* If the kernel refused, siw returns -1, with the reason in errno. */
	return err == -1 && errno ? -errno : vb_negative(err);
}

static int run_next(struct run *run, const struct vb_op *op, int opcode, struct abi_send_wr **out)
{
	struct abi_send_wr *w;
	int err = run->n == POST_BATCH ? run_post(run) : 0;

	w = &run->wr[run->n];
	*w = (struct abi_send_wr){
		.wr_id = vb_wr_id(VB_ID_SEND, run->q->generation, run->q->slot, op->seq),
		.sg_list = &run->sge[run->n],
		.next = w + 1,
		.opcode = opcode,
	};
	run->n++;
	*out = w;
	return err;
}

/* siw sends a long work request that is not signalled without a copy, and
 * completes it while TCP may still have to retransmit it from the same memory. */
static void run_part(const struct run *run, struct abi_send_wr *w, uint32_t bytes)
{
	if (run->q->signal_bytes && bytes >= run->q->signal_bytes) {
		w->send_flags |= ABI_SEND_SIGNALED;
		w->wr_id |= (uint64_t)VB_ID_PART << 60;
	}
}

static int run_access(struct run *run, const struct vb_op *op, int opcode)
{
	uint32_t done = 0;

	do {
		struct abi_send_wr *w;
		uint32_t piece = op->len - done;
		int err = run_next(run, op, opcode, &w);

		if (err)
			return err;
		if (piece > run->q->split_bytes)
			piece = run->q->split_bytes;
		*w->sg_list = (struct abi_sge){ .addr = op->local + done, .length = piece, .lkey = op->lkey };
		w->num_sge = piece ? 1 : 0;
		w->wr.rdma.remote_addr = op->remote + done;
		w->wr.rdma.rkey = op->rkey;
		if (!done && (op->flags & VB_FENCED))
			w->send_flags |= ABI_SEND_FENCE;
		/* This saves the device a fetch, and prevents siw from sending
		 * wrong bytes when so few bytes cross a page boundary. */
		if (opcode == ABI_WR_RDMA_WRITE && (op->flags & VB_READABLE) && piece &&
		    piece <= run->q->inline_bytes)
			w->send_flags |= ABI_SEND_INLINE;
		run_part(run, w, piece);
		done += piece;
	} while (done < op->len);
	return 0;
}

static int run_send(struct run *run, const struct vb_op *op, int tag, uint32_t bytes)
{
	const struct vb_qp *q = run->q;
	uint8_t *buf = send_buffer(q, op->seq);
	uint32_t imm = htobe32(op->imm);
	struct abi_send_wr *w;
	int err = run_next(run, op, ABI_WR_SEND, &w);

	if (err)
		return err;
	memset(buf, 0, 4);
	buf[0] = (uint8_t)tag;
	memcpy(buf + 4, &imm, 4);
	*w->sg_list = (struct abi_sge){
		.addr = (uintptr_t)buf, .length = VB_TAG_BYTES + bytes, .lkey = q->mr->lkey
	};
	w->num_sge = 1;
	if (VB_TAG_BYTES + bytes <= q->inline_bytes)
		w->send_flags |= ABI_SEND_INLINE;
	if (op->flags & VB_FENCED)
		w->send_flags |= ABI_SEND_FENCE;
	run_part(run, w, VB_TAG_BYTES + bytes);
	return 0;
}

static int run_op(struct run *run, const struct vb_op *op)
{
	int err;

	switch (op->kind) {
	case VB_SEND:
		err = run_send(run, op, VB_MESSAGE, op->len);
		break;
	case VB_READ:
		err = run_access(run, op, ABI_WR_RDMA_READ);
		break;
	case VB_WRITE_THEN_SEND:
		err = op->len ? run_access(run, op, ABI_WR_RDMA_WRITE) : 0;
		if (!err)
			err = run_send(run, op, VB_IMM_BY_SEND, 0);
		break;
	default:
		err = run_access(run, op, ABI_WR_RDMA_WRITE);
		if (!err && op->kind == VB_WRITE_IMM) {
			run->wr[run->n - 1].opcode = ABI_WR_RDMA_WRITE_WITH_IMM;
			run->wr[run->n - 1].imm_data = htobe32(op->imm);
		}
	}
	if (!err && (op->flags & VB_SIGNALED)) {
		struct abi_send_wr *last = &run->wr[run->n - 1];

		last->send_flags |= ABI_SEND_SIGNALED;
		last->wr_id = vb_wr_id(VB_ID_SEND, run->q->generation, run->q->slot, op->seq);
	}
	return err;
}

int vb_qp_post(struct vb_qp *q, int n)
{
	struct run run;

	run.q = q;
	run.n = 0;
	for (int i = 0; i < n; i++) {
		int err = run_op(&run, &q->op[i]);

		if (err)
			return err;
	}
	return run_post(&run);
}

int vb_qp_greet(struct vb_qp *q, uint32_t seq, uint32_t imm)
{
	struct vb_op op = { .kind = VB_WRITE_IMM, .flags = VB_SIGNALED, .seq = seq, .imm = imm };
	struct run run;
	int err;

	run.q = q;
	run.n = 0;
	err = run_op(&run, &op);
	return err ? err : run_post(&run);
}

int vb_qp_tell(struct vb_qp *q, int kind, uint32_t seq, uint32_t imm)
{
	struct vb_op op = { .seq = seq, .imm = imm };
	struct run run;
	int err;

	run.q = q;
	run.n = 0;
	err = run_send(&run, &op, kind, 0);
	run.wr[0].send_flags |= ABI_SEND_SIGNALED;
	return err ? err : run_post(&run);
}

int vb_qp_to_error(struct vb_qp *q)
{
	struct abi_qp_attr a = { .qp_state = ABI_QPS_ERR };

	/* Software devices miss a receive that is posted in the error state, and
	 * never flush it. */
	__atomic_store_n(&q->stopped, 1, __ATOMIC_RELAXED);
	return vb_negative(q->rail->api->ibv_modify_qp(q->qp, &a, ABI_QP_STATE));
}

int vb_qp_rnr_timer(struct vb_qp *q, int code)
{
	struct abi_qp_attr a = { .min_rnr_timer = (uint8_t)code };

	return vb_negative(q->rail->api->ibv_modify_qp(q->qp, &a, ABI_QP_MIN_RNR_TIMER));
}

void vb_qp_attach(struct vb_qp *q)
{
	q->rail->qp[q->slot] = q;
}

void vb_qp_detach(struct vb_qp *q)
{
	if (q->rail->qp[q->slot] == q)
		q->rail->qp[q->slot] = NULL;
}

int vb_qp_close(struct vb_qp *q)
{
	const struct vb_api *api = q->rail->api;
	int err = 0;

	vb_qp_detach(q);
	if (q->qp)
		api->rdma_destroy_qp(q->id);
	if (q->mr)
		err = vb_mr_deregister(api, q->mr);
	/* Memory that is still registered remains mapped: the device may be
	 * using it. */
	if (q->mem && !err)
		munmap(q->mem, q->mem_bytes);
	free(q->op);
	free(q);
	return err;
}
