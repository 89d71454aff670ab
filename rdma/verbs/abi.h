/*
 * The memory layout of libibverbs.so.1 and librdmacm.so.1, as far as this
 * package uses it. Both libraries keep this layout for the life of their soname
 * (rdma-core, Documentation/versioning.md), so the package builds on a machine
 * without their headers. testdata/abi_check.c compares every member with the
 * real headers if they are installed.
 *
 * Objects that the libraries allocate are declared only up to the last member
 * read here. Objects that this package allocates are declared whole.
 */
#ifndef GDRCP_VERBS_ABI_H
#define GDRCP_VERBS_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct abi_device;
struct abi_context;
struct abi_pd;
struct abi_qp;
struct abi_cq;
struct abi_send_wr;
struct abi_recv_wr;
struct abi_wc;

/* The verbs without a symbol of their own are called through this table. */
struct abi_context_ops {
	void *compat_0[11];
	int (*poll_cq)(struct abi_cq *cq, int num_entries, struct abi_wc *wc);
	int (*req_notify_cq)(struct abi_cq *cq, int solicited_only);
	void *compat_1[12];
	int (*post_send)(struct abi_qp *qp, struct abi_send_wr *wr, struct abi_send_wr **bad_wr);
	int (*post_recv)(struct abi_qp *qp, struct abi_recv_wr *wr, struct abi_recv_wr **bad_wr);
	void *compat_2[5];
};

struct abi_context {
	struct abi_device *device;
	struct abi_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
};

struct abi_comp_channel {
	struct abi_context *context;
	int fd;
};

struct abi_cq {
	struct abi_context *context;
	struct abi_comp_channel *channel;
};

struct abi_qp {
	struct abi_context *context;
	void *qp_context;
	struct abi_pd *pd;
	struct abi_cq *send_cq;
	struct abi_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
};

struct abi_mr {
	struct abi_context *context;
	struct abi_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct abi_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct abi_recv_wr {
	uint64_t wr_id;
	struct abi_recv_wr *next;
	struct abi_sge *sg_list;
	int num_sge;
};

struct abi_send_wr {
	uint64_t wr_id;
	struct abi_send_wr *next;
	struct abi_sge *sg_list;
	int num_sge;
	int opcode;
	unsigned int send_flags;
	uint32_t imm_data; /* big-endian */
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		uint64_t room[4];
	} wr;
	uint64_t qp_type;
	uint64_t bind_mw[6];
};

struct abi_wc {
	uint64_t wr_id;
	int status;
	int opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data; /* big-endian */
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct abi_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct abi_qp_init_attr {
	void *qp_context;
	struct abi_cq *send_cq;
	struct abi_cq *recv_cq;
	void *srq;
	struct abi_qp_cap cap;
	int qp_type;
	int sq_sig_all;
};

struct abi_ah_attr {
	uint64_t grh[3];
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct abi_qp_attr {
	int qp_state;
	int cur_qp_state;
	int path_mtu;
	int path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct abi_qp_cap cap;
	struct abi_ah_attr ah_attr;
	struct abi_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct abi_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int other[16];
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct abi_port_attr {
	int state;
	int max_mtu;
	int active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct abi_async_event {
	union {
		struct abi_cq *cq;
		struct abi_qp *qp;
		int port_num;
	} element;
	int event_type;
};

struct abi_cm_channel {
	int fd;
};

struct abi_cm_id {
	struct abi_context *verbs;
	struct abi_cm_channel *channel;
	void *context;
	struct abi_qp *qp;
	struct sockaddr_storage src_addr;
	struct sockaddr_storage dst_addr;
	uint8_t sgid[16]; /* the first member of addr.ibaddr */
	uint64_t ibaddr_rest[3];
	void *path_rec;
	uint64_t num_paths;
	int ps;
	uint8_t port_num;
};

struct abi_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct abi_cm_event {
	struct abi_cm_id *id;
	struct abi_cm_id *listen_id;
	int event;
	int status;
	struct abi_conn_param conn;
};

enum {
	ABI_QPT_RC = 2,
	ABI_QPS_ERR = 6,
	ABI_QP_STATE = 1 << 0,
	ABI_QP_MIN_RNR_TIMER = 1 << 15,
	ABI_WR_RDMA_WRITE = 0,
	ABI_WR_RDMA_WRITE_WITH_IMM = 1,
	ABI_WR_SEND = 2,
	ABI_WR_RDMA_READ = 4,
	ABI_SEND_FENCE = 1 << 0,
	ABI_SEND_SIGNALED = 1 << 1,
	ABI_SEND_INLINE = 1 << 3,
	ABI_WC_WITH_IMM = 1 << 1,
	ABI_ACCESS_LOCAL_WRITE = 1 << 0,
	ABI_ACCESS_REMOTE_WRITE = 1 << 1,
	ABI_ACCESS_REMOTE_READ = 1 << 2,
	ABI_ACCESS_RELAXED_ORDERING = 1 << 20,
	ABI_PS_TCP = 0x0106,
	ABI_OPTION_ID = 0,
	ABI_OPTION_ID_TOS = 0,
	ABI_OPTION_ID_ACK_TIMEOUT = 3,
	ABI_EVENT_CQ_ERR = 0,
	ABI_EVENT_QP_FATAL = 1,
	ABI_EVENT_QP_REQ_ERR = 2,
	ABI_EVENT_QP_ACCESS_ERR = 3,
	ABI_EVENT_COMM_EST = 4,
	ABI_EVENT_SQ_DRAINED = 5,
	ABI_EVENT_PATH_MIG = 6,
	ABI_EVENT_PATH_MIG_ERR = 7,
	ABI_EVENT_DEVICE_FATAL = 8,
	ABI_EVENT_PORT_ACTIVE = 9,
	ABI_EVENT_PORT_ERR = 10,
	ABI_EVENT_LID_CHANGE = 11,
	ABI_EVENT_QP_LAST_WQE_REACHED = 16,
	ABI_EVENT_GID_CHANGE = 18,
};

#endif
