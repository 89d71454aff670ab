/* The functions of the two libraries, and the declarations that rail.c and qp.c
 * share. */
#ifndef GDRCP_VERBS_TABLE_H
#define GDRCP_VERBS_TABLE_H

#include "shim.h"

#define VB_VERBS_1_1(X)                                                                        \
	X(struct abi_device **, ibv_get_device_list, (int *))                                  \
	X(void, ibv_free_device_list, (struct abi_device **))                                  \
	X(const char *, ibv_get_device_name, (struct abi_device *))                            \
	X(int, ibv_query_device, (struct abi_context *, struct abi_device_attr *))             \
	X(int, ibv_query_port, (struct abi_context *, uint8_t, struct abi_port_attr *))        \
	X(struct abi_pd *, ibv_alloc_pd, (struct abi_context *))                               \
	X(int, ibv_dealloc_pd, (struct abi_pd *))                                              \
	X(struct abi_mr *, ibv_reg_mr, (struct abi_pd *, void *, size_t, int))                 \
	X(int, ibv_dereg_mr, (struct abi_mr *))                                                \
	X(struct abi_cq *, ibv_create_cq,                                                      \
	  (struct abi_context *, int, void *, struct abi_comp_channel *, int))                 \
	X(int, ibv_destroy_cq, (struct abi_cq *))                                              \
	X(int, ibv_get_cq_event, (struct abi_comp_channel *, struct abi_cq **, void **))       \
	X(void, ibv_ack_cq_events, (struct abi_cq *, unsigned int))                            \
	X(int, ibv_modify_qp, (struct abi_qp *, struct abi_qp_attr *, int))                    \
	X(int, ibv_get_async_event, (struct abi_context *, struct abi_async_event *))          \
	X(void, ibv_ack_async_event, (struct abi_async_event *))

#define VB_VERBS_1_0(X)                                                                        \
	X(struct abi_comp_channel *, ibv_create_comp_channel, (struct abi_context *))          \
	X(int, ibv_destroy_comp_channel, (struct abi_comp_channel *))

/* Functions that libraries before rdma-core 28 lack; then they are NULL. */
#define VB_VERBS_1_8(X)                                                                        \
	X(struct abi_mr *, ibv_reg_mr_iova2,                                                   \
	  (struct abi_pd *, void *, size_t, uint64_t, unsigned int))

/* Functions that libraries before rdma-core 34 lack; then they are NULL. */
#define VB_VERBS_1_12(X)                                                                       \
	X(struct abi_mr *, ibv_reg_dmabuf_mr,                                                  \
	  (struct abi_pd *, uint64_t, size_t, uint64_t, int, int))

#define VB_RDMACM_1_0(X)                                                                       \
	X(struct abi_context **, rdma_get_devices, (int *))                                    \
	X(void, rdma_free_devices, (struct abi_context **))                                    \
	X(struct abi_cm_channel *, rdma_create_event_channel, (void))                          \
	X(void, rdma_destroy_event_channel, (struct abi_cm_channel *))                         \
	X(int, rdma_get_cm_event, (struct abi_cm_channel *, struct abi_cm_event **))           \
	X(int, rdma_ack_cm_event, (struct abi_cm_event *))                                     \
	X(int, rdma_create_id, (struct abi_cm_channel *, struct abi_cm_id **, void *, int))    \
	X(int, rdma_destroy_id, (struct abi_cm_id *))                                          \
	X(int, rdma_migrate_id, (struct abi_cm_id *, struct abi_cm_channel *))                 \
	X(int, rdma_bind_addr, (struct abi_cm_id *, struct sockaddr *))                        \
	X(int, rdma_listen, (struct abi_cm_id *, int))                                         \
	X(int, rdma_resolve_addr,                                                              \
	  (struct abi_cm_id *, struct sockaddr *, struct sockaddr *, int))                     \
	X(int, rdma_resolve_route, (struct abi_cm_id *, int))                                  \
	X(int, rdma_set_option, (struct abi_cm_id *, int, int, void *, size_t))                \
	X(int, rdma_create_qp, (struct abi_cm_id *, struct abi_pd *, struct abi_qp_init_attr *)) \
	X(void, rdma_destroy_qp, (struct abi_cm_id *))                                         \
	X(int, rdma_connect, (struct abi_cm_id *, struct abi_conn_param *))                    \
	X(int, rdma_accept, (struct abi_cm_id *, struct abi_conn_param *))                     \
	X(int, rdma_reject, (struct abi_cm_id *, const void *, uint8_t))                       \
	X(int, rdma_notify, (struct abi_cm_id *, int))                                         \
	X(int, rdma_disconnect, (struct abi_cm_id *))

#define VB_MEMBER(ret, name, args) ret(*name) args;

struct vb_api {
	VB_VERBS_1_1(VB_MEMBER)
	VB_VERBS_1_0(VB_MEMBER)
	VB_VERBS_1_8(VB_MEMBER)
	VB_VERBS_1_12(VB_MEMBER)
	VB_RDMACM_1_0(VB_MEMBER)
};

/* wr_id: side | generation | slot | sequence or receive index. On an error
 * completion only wr_id, the status, qp_num and vendor_err are valid. */
enum { VB_ID_SEND = 1, VB_ID_RECV = 2, VB_ID_PART = 3 /* of an operation */ };

static inline uint64_t vb_wr_id(int side, int generation, int slot, uint32_t seq)
{
	return (uint64_t)side << 60 | (uint64_t)(generation & 0xffff) << 44 |
	       (uint64_t)(slot & 0xfff) << 32 | seq;
}

struct vb_qp {
	struct vb_rail *rail;
	struct abi_cm_id *id;
	struct abi_qp *qp;
	int slot, generation;
	int ops, recvs, recvs_posted;
	int stopped; /* atomic: receives are not posted again */
	uint32_t stride, split_bytes, signal_bytes, inline_bytes;
	uint8_t *mem; /* receive buffers, then one send buffer per operation */
	size_t mem_bytes;
	struct abi_mr *mr;
	struct vb_op *op;
	/* The receives that one poll posts again. */
	struct abi_recv_wr *again_first, *again_last;
};

struct vb_rail {
	const struct vb_api *api;
	struct abi_context *ctx;
	struct abi_pd *pd;
	struct abi_comp_channel *channel;
	struct abi_cq *cq;
	int armed;
	uint32_t msg_bytes;
	int slots;
	struct vb_qp *qp[];
};

/* Some providers return a negative errno (siw), contrary to ibv_post_send(3). */
static inline int vb_negative(int err)
{
	return err > 0 ? -err : err;
}

int vb_nonblocking(int fd);
void vb_recv_fill(const struct vb_qp *q, uint32_t index, struct abi_recv_wr *wr, struct abi_sge *sge);
int vb_recv_post(struct vb_qp *q, struct abi_recv_wr *first);

#endif
