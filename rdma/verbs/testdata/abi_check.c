/* Compares abi.h with the headers of rdma-core. Compiling it is the test. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include "../abi.h"

#define AT(mine, field, theirs, other)                                          \
	_Static_assert(offsetof(struct mine, field) == offsetof(struct theirs, other), \
		       #mine "." #field " moved");                             \
	_Static_assert(sizeof(((struct mine *)0)->field) == sizeof(((struct theirs *)0)->other), \
		       #mine "." #field " has another size")
#define SAME(mine, theirs, field) AT(mine, field, theirs, field)
#define WHOLE(mine, theirs) \
	_Static_assert(sizeof(struct mine) == sizeof(struct theirs), #mine " has another size")
/* For a structure that may grow at its end: it begins with the whole of
 * ours. */
#define BEGINS(mine, theirs, last)                                                          \
	SAME(mine, theirs, last);                                                           \
	_Static_assert(sizeof(struct mine) - sizeof(((struct mine *)0)->last)               \
			       - offsetof(struct mine, last) < _Alignof(struct mine),       \
		       #mine " goes on after " #last);                                      \
	_Static_assert(sizeof(struct mine) <= sizeof(struct theirs), #mine " is larger")
#define VALUE(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #mine " differs")

SAME(abi_context_ops, ibv_context_ops, poll_cq);
SAME(abi_context_ops, ibv_context_ops, req_notify_cq);
SAME(abi_context_ops, ibv_context_ops, post_send);
SAME(abi_context_ops, ibv_context_ops, post_recv);
WHOLE(abi_context_ops, ibv_context_ops);
SAME(abi_context, ibv_context, device);
SAME(abi_context, ibv_context, ops);
SAME(abi_context, ibv_context, cmd_fd);
SAME(abi_context, ibv_context, async_fd);
SAME(abi_context, ibv_context, num_comp_vectors);
SAME(abi_comp_channel, ibv_comp_channel, fd);
SAME(abi_cq, ibv_cq, context);
SAME(abi_cq, ibv_cq, channel);
SAME(abi_qp, ibv_qp, context);
SAME(abi_qp, ibv_qp, qp_num);
SAME(abi_mr, ibv_mr, addr);
SAME(abi_mr, ibv_mr, lkey);
SAME(abi_mr, ibv_mr, rkey);

SAME(abi_sge, ibv_sge, addr);
SAME(abi_sge, ibv_sge, length);
SAME(abi_sge, ibv_sge, lkey);
WHOLE(abi_sge, ibv_sge);
SAME(abi_recv_wr, ibv_recv_wr, wr_id);
SAME(abi_recv_wr, ibv_recv_wr, next);
SAME(abi_recv_wr, ibv_recv_wr, sg_list);
SAME(abi_recv_wr, ibv_recv_wr, num_sge);
WHOLE(abi_recv_wr, ibv_recv_wr);
SAME(abi_send_wr, ibv_send_wr, wr_id);
SAME(abi_send_wr, ibv_send_wr, next);
SAME(abi_send_wr, ibv_send_wr, sg_list);
SAME(abi_send_wr, ibv_send_wr, num_sge);
SAME(abi_send_wr, ibv_send_wr, opcode);
SAME(abi_send_wr, ibv_send_wr, send_flags);
SAME(abi_send_wr, ibv_send_wr, imm_data);
SAME(abi_send_wr, ibv_send_wr, wr.rdma.remote_addr);
SAME(abi_send_wr, ibv_send_wr, wr.rdma.rkey);
WHOLE(abi_send_wr, ibv_send_wr);
SAME(abi_wc, ibv_wc, wr_id);
SAME(abi_wc, ibv_wc, status);
SAME(abi_wc, ibv_wc, opcode);
SAME(abi_wc, ibv_wc, vendor_err);
SAME(abi_wc, ibv_wc, byte_len);
SAME(abi_wc, ibv_wc, imm_data);
SAME(abi_wc, ibv_wc, qp_num);
SAME(abi_wc, ibv_wc, wc_flags);
WHOLE(abi_wc, ibv_wc);

SAME(abi_qp_init_attr, ibv_qp_init_attr, send_cq);
SAME(abi_qp_init_attr, ibv_qp_init_attr, recv_cq);
SAME(abi_qp_init_attr, ibv_qp_init_attr, cap.max_send_wr);
SAME(abi_qp_init_attr, ibv_qp_init_attr, cap.max_inline_data);
SAME(abi_qp_init_attr, ibv_qp_init_attr, qp_type);
SAME(abi_qp_init_attr, ibv_qp_init_attr, sq_sig_all);
WHOLE(abi_qp_init_attr, ibv_qp_init_attr);
WHOLE(abi_ah_attr, ibv_ah_attr);
SAME(abi_qp_attr, ibv_qp_attr, qp_state);
SAME(abi_qp_attr, ibv_qp_attr, ah_attr);
SAME(abi_qp_attr, ibv_qp_attr, min_rnr_timer);
SAME(abi_qp_attr, ibv_qp_attr, timeout);
SAME(abi_qp_attr, ibv_qp_attr, rate_limit);
WHOLE(abi_qp_attr, ibv_qp_attr);
SAME(abi_device_attr, ibv_device_attr, fw_ver);
SAME(abi_device_attr, ibv_device_attr, max_mr_size);
SAME(abi_device_attr, ibv_device_attr, max_qp);
SAME(abi_device_attr, ibv_device_attr, max_qp_wr);
SAME(abi_device_attr, ibv_device_attr, max_cqe);
SAME(abi_device_attr, ibv_device_attr, max_qp_rd_atom);
SAME(abi_device_attr, ibv_device_attr, max_qp_init_rd_atom);
SAME(abi_device_attr, ibv_device_attr, phys_port_cnt);
WHOLE(abi_device_attr, ibv_device_attr);
SAME(abi_port_attr, ibv_port_attr, state);
SAME(abi_port_attr, ibv_port_attr, active_mtu);
SAME(abi_port_attr, ibv_port_attr, max_msg_sz);
SAME(abi_port_attr, ibv_port_attr, link_layer);
SAME(abi_port_attr, ibv_port_attr, flags);
/* Since rdma-core 49 ibv_port_attr has one more member, active_speed_ex. Only a driver's own
 * query_port sees that: the library's function, which this package calls, fills the members up to
 * flags (_compat_ibv_port_attr in libibverbs/verbs.c). */
BEGINS(abi_port_attr, ibv_port_attr, port_cap_flags2);
SAME(abi_async_event, ibv_async_event, element.qp);
SAME(abi_async_event, ibv_async_event, element.port_num);
SAME(abi_async_event, ibv_async_event, event_type);
WHOLE(abi_async_event, ibv_async_event);

SAME(abi_cm_channel, rdma_event_channel, fd);
SAME(abi_cm_id, rdma_cm_id, verbs);
SAME(abi_cm_id, rdma_cm_id, channel);
SAME(abi_cm_id, rdma_cm_id, qp);
AT(abi_cm_id, src_addr, rdma_cm_id, route.addr.src_storage);
AT(abi_cm_id, dst_addr, rdma_cm_id, route.addr.dst_storage);
AT(abi_cm_id, sgid, rdma_cm_id, route.addr.addr.ibaddr.sgid);
AT(abi_cm_id, path_rec, rdma_cm_id, route.path_rec);
SAME(abi_cm_id, rdma_cm_id, ps);
SAME(abi_cm_id, rdma_cm_id, port_num);
SAME(abi_conn_param, rdma_conn_param, private_data);
SAME(abi_conn_param, rdma_conn_param, private_data_len);
SAME(abi_conn_param, rdma_conn_param, responder_resources);
SAME(abi_conn_param, rdma_conn_param, initiator_depth);
SAME(abi_conn_param, rdma_conn_param, flow_control);
SAME(abi_conn_param, rdma_conn_param, retry_count);
SAME(abi_conn_param, rdma_conn_param, rnr_retry_count);
SAME(abi_conn_param, rdma_conn_param, qp_num);
WHOLE(abi_conn_param, rdma_conn_param);
SAME(abi_cm_event, rdma_cm_event, id);
SAME(abi_cm_event, rdma_cm_event, listen_id);
SAME(abi_cm_event, rdma_cm_event, event);
SAME(abi_cm_event, rdma_cm_event, status);
AT(abi_cm_event, conn, rdma_cm_event, param.conn);

VALUE(ABI_QPT_RC, IBV_QPT_RC);
VALUE(ABI_QPS_ERR, IBV_QPS_ERR);
VALUE(ABI_QP_STATE, IBV_QP_STATE);
VALUE(ABI_QP_MIN_RNR_TIMER, IBV_QP_MIN_RNR_TIMER);
VALUE(ABI_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE);
VALUE(ABI_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM);
VALUE(ABI_WR_SEND, IBV_WR_SEND);
VALUE(ABI_WR_RDMA_READ, IBV_WR_RDMA_READ);
VALUE(ABI_SEND_FENCE, IBV_SEND_FENCE);
VALUE(ABI_SEND_SIGNALED, IBV_SEND_SIGNALED);
VALUE(ABI_SEND_INLINE, IBV_SEND_INLINE);
VALUE(ABI_WC_WITH_IMM, IBV_WC_WITH_IMM);
VALUE(ABI_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE);
VALUE(ABI_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE);
VALUE(ABI_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ);
VALUE(ABI_ACCESS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING);
VALUE(ABI_PS_TCP, RDMA_PS_TCP);
VALUE(ABI_OPTION_ID, RDMA_OPTION_ID);
VALUE(ABI_OPTION_ID_TOS, RDMA_OPTION_ID_TOS);
VALUE(ABI_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_ACK_TIMEOUT);
VALUE(ABI_EVENT_CQ_ERR, IBV_EVENT_CQ_ERR);
VALUE(ABI_EVENT_QP_FATAL, IBV_EVENT_QP_FATAL);
VALUE(ABI_EVENT_QP_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
VALUE(ABI_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
VALUE(ABI_EVENT_COMM_EST, IBV_EVENT_COMM_EST);
VALUE(ABI_EVENT_SQ_DRAINED, IBV_EVENT_SQ_DRAINED);
VALUE(ABI_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG);
VALUE(ABI_EVENT_PATH_MIG_ERR, IBV_EVENT_PATH_MIG_ERR);
VALUE(ABI_EVENT_DEVICE_FATAL, IBV_EVENT_DEVICE_FATAL);
VALUE(ABI_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ACTIVE);
VALUE(ABI_EVENT_PORT_ERR, IBV_EVENT_PORT_ERR);
VALUE(ABI_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED);
VALUE(ABI_EVENT_LID_CHANGE, IBV_EVENT_LID_CHANGE);
VALUE(ABI_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE);
