//go:build linux && cgo

#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int vb_device_names(const struct vb_api *api, char *names, int max)
{
	int n = 0;
	struct abi_device **list;

	errno = 0;
	list = api->ibv_get_device_list(&n);
	if (!list)
		return errno ? -errno : -ENOSYS;
	for (int i = 0; i < n && i < max; i++)
		snprintf(names + i * VB_NAME_BYTES, VB_NAME_BYTES, "%s",
			 api->ibv_get_device_name(list[i]));
	api->ibv_free_device_list(list);
	return n;
}

int vb_contexts(const struct vb_api *api, struct abi_context ***out)
{
	int n = 0;

	errno = 0;
	*out = api->rdma_get_devices(&n);
	return *out ? 0 : -(errno ? errno : ENODEV);
}

void vb_contexts_free(const struct vb_api *api, struct abi_context **list)
{
	api->rdma_free_devices(list);
}

struct abi_context *vb_context(const struct vb_api *api, struct abi_context **list, const char *name)
{
	for (; *list; list++)
		if (!strcmp(api->ibv_get_device_name((*list)->device), name))
			return *list;
	return NULL;
}

int vb_query_device(const struct vb_api *api, struct abi_context *ctx, struct vb_limits *out)
{
	struct abi_device_attr a;
	int err;

	memset(&a, 0, sizeof a);
	err = api->ibv_query_device(ctx, &a);
	if (err)
		return vb_negative(err);
	*out = (struct vb_limits){
		.max_qp_wr = a.max_qp_wr,
		.max_cqe = a.max_cqe,
		.max_read_in = a.max_qp_rd_atom,
		.max_read_out = a.max_qp_init_rd_atom,
		.vendor_id = a.vendor_id,
	};
	return 0;
}

int vb_query_port(const struct vb_api *api, struct abi_context *ctx, int port, struct vb_port *out)
{
	struct abi_port_attr a;
	int err;

	/* The exported function fills an older, shorter structure. */
	memset(&a, 0, sizeof a);
	err = api->ibv_query_port(ctx, (uint8_t)port, &a);
	if (err)
		return vb_negative(err);
	*out = (struct vb_port){
		.mtu_code = a.active_mtu,
		.max_msg_bytes = a.max_msg_sz,
	};
	return 0;
}

/* A driver that imports dma-bufs looks up descriptor -1 and answers EBADF.
 * Other drivers fail before that. */
int vb_device_imports(const struct vb_api *api, struct abi_context *ctx)
{
	enum { SOME_BYTES = 65536 }; /* a page of any kernel */
	struct abi_pd *pd;
	struct abi_mr *mr;
	int err;

	errno = 0;
	pd = api->ibv_alloc_pd(ctx);
	if (!pd)
		return -(errno ? errno : EIO);
	errno = 0;
	mr = api->ibv_reg_dmabuf_mr(pd, 0, SOME_BYTES, 0, -1, 0);
	err = errno;
	if (mr) {
		api->ibv_dereg_mr(mr);
		err = 0;
	}
	api->ibv_dealloc_pd(pd);
	if (err == EBADF)
		return 0;
	return -(err ? err : EIO);
}

int vb_async_fd(struct abi_context *ctx)
{
	int err = vb_nonblocking(ctx->async_fd);

	return err ? err : ctx->async_fd;
}

int vb_async_next(const struct vb_api *api, struct abi_context *ctx, struct vb_async *out)
{
	struct abi_async_event e;

	if (api->ibv_get_async_event(ctx, &e))
		return errno ? -errno : -EIO;
	memset(out, 0, sizeof *out);
	out->type = e.event_type;
	switch (e.event_type) {
	case ABI_EVENT_CQ_ERR:
		out->cq = e.element.cq;
		break;
	case ABI_EVENT_QP_FATAL:
	case ABI_EVENT_QP_REQ_ERR:
	case ABI_EVENT_QP_ACCESS_ERR:
	case ABI_EVENT_COMM_EST:
	case ABI_EVENT_SQ_DRAINED:
	case ABI_EVENT_PATH_MIG:
	case ABI_EVENT_PATH_MIG_ERR:
	case ABI_EVENT_QP_LAST_WQE_REACHED:
		/* Destroying the queue pair waits for the acknowledgement below. */
		out->qp_num = e.element.qp->qp_num;
		break;
	default:
		out->port = e.element.port_num;
	}
	api->ibv_ack_async_event(&e);
	return 0;
}
