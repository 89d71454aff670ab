/*
 * The C half of the package: code that needs the libraries' structures, or that
 * handles many work requests or completions in one call from Go.
 *
 * Every function that can fail returns 0 or a count, or -errno. No function
 * stores a pointer that Go passed in, and none calls back into Go. Only
 * vb_id_connect waits for the peer. Functions that create or destroy an object
 * wait for the kernel and, if the driver does, for the device; comments mark
 * those that block longest. One thread at a time may poll a vb_rail, and one at
 * a time may post to a vb_qp; the Go half holds the locks.
 */
#ifndef GDRCP_VERBS_SHIM_H
#define GDRCP_VERBS_SHIM_H

#include "abi.h"

/* load.c: the libraries, opened at run time. */

enum { VB_NO_LIBRARY = 1, VB_NO_SYMBOL = 2 };

struct vb_load_error {
	int kind;
	char library[256];
	char symbol[64];
	char version[16];
	char reason[512];
};

struct vb_api;
int vb_load(const char *libibverbs, const char *librdmacm, struct vb_api **out,
	    struct vb_load_error *err);

/* device.c: devices and their asynchronous events. */

struct vb_limits {
	int max_qp_wr, max_cqe, max_read_in, max_read_out;
	uint32_t vendor_id;
};

struct vb_port {
	int mtu_code;
	uint32_t max_msg_bytes;
};

struct vb_async {
	int type;
	uint32_t qp_num;
	const struct abi_cq *cq;
	int port;
};

enum { VB_NAME_BYTES = 64 };

/* Names up to max devices into names, VB_NAME_BYTES each; returns their number. */
int vb_device_names(const struct vb_api *api, char *names, int max);
/* A list of the contexts that librdmacm has open, ending in NULL. They stay
 * open at least until it is freed. Opens every device the first time, which
 * blocks. */
int vb_contexts(const struct vb_api *api, struct abi_context ***out);
void vb_contexts_free(const struct vb_api *api, struct abi_context **list);
/* The named device's context in the list, or NULL. */
struct abi_context *vb_context(const struct vb_api *api, struct abi_context **list, const char *name);
int vb_query_device(const struct vb_api *api, struct abi_context *ctx, struct vb_limits *out);
int vb_query_port(const struct vb_api *api, struct abi_context *ctx, int port, struct vb_port *out);
/* Returns 0 if the device's driver imports dma-bufs, otherwise the error. */
int vb_device_imports(const struct vb_api *api, struct abi_context *ctx);
int vb_async_fd(struct abi_context *ctx);
/* Takes and acknowledges one asynchronous event; -EAGAIN without one. */
int vb_async_next(const struct vb_api *api, struct abi_context *ctx, struct vb_async *out);

/* cm.c: connection management. */

struct vb_addr {
	int family; /* AF_INET, AF_INET6 or 0 for none */
	uint8_t ip[16];
	uint16_t port;
	uint32_t scope;
};

struct vb_cm_event {
	int event, status;
	struct abi_cm_id *id;
	/* In a request: how many Reads the peer wants in flight to this end,
	 * and how many it allows this end. */
	int read_in, read_out;
	int private_bytes;
	uint8_t private_data[255];
};

struct vb_conn_param {
	int retry, rnr_retry, read_in, read_out;
};

int vb_cm_open(const struct vb_api *api, struct abi_cm_channel **out);
int vb_cm_fd(const struct abi_cm_channel *ch);
void vb_cm_close(const struct vb_api *api, struct abi_cm_channel *ch);
/* Takes, copies and acknowledges one event; -EAGAIN without one. */
int vb_cm_next(const struct vb_api *api, struct abi_cm_channel *ch, struct vb_cm_event *out);
/* tos, unless 0, is the type of service of accepted iWARP connections. */
int vb_cm_listen(const struct vb_api *api, struct abi_cm_channel *ch, const struct vb_addr *at,
		 int backlog, int tos, struct abi_cm_id **out);
int vb_cm_resolve(const struct vb_api *api, struct abi_cm_channel *ch, const struct vb_addr *from,
		  const struct vb_addr *to, int timeout_ms, struct abi_cm_id **out);
int vb_id_ack_timeout(const struct vb_api *api, struct abi_cm_id *id, int exponent);
int vb_id_tos(const struct vb_api *api, struct abi_cm_id *id, int tos);
int vb_id_route(const struct vb_api *api, struct abi_cm_id *id, int timeout_ms);
/* Blocks on Soft-iWARP until the TCP connection is established, or the kernel has given up. */
int vb_id_connect(const struct vb_api *api, struct abi_cm_id *id, const struct vb_conn_param *p,
		  const uint8_t *data, int bytes);
int vb_id_accept(const struct vb_api *api, struct abi_cm_id *id, const struct vb_conn_param *p,
		 const uint8_t *data, int bytes);
int vb_id_reject(const struct vb_api *api, struct abi_cm_id *id, const uint8_t *data, int bytes);
/* Notifies the connection manager that the peer has sent data, so that it
 * considers the connection established. Fails if it already does. */
int vb_id_stands(const struct vb_api *api, struct abi_cm_id *id);
int vb_id_disconnect(const struct vb_api *api, struct abi_cm_id *id);
/* Blocks until events of the id are acknowledged, which vb_cm_next does. */
int vb_id_destroy(const struct vb_api *api, struct abi_cm_id *id);
int vb_id_migrate(const struct vb_api *api, struct abi_cm_id *id, struct abi_cm_channel *to);
struct abi_context *vb_id_context(const struct abi_cm_id *id);
const char *vb_id_device(const struct vb_api *api, const struct abi_cm_id *id);
void vb_id_addrs(const struct abi_cm_id *id, struct vb_addr *local, struct vb_addr *remote);
/* The port that the id is bound to, and this end's GID there: zeros if it has none. */
int vb_id_port(const struct abi_cm_id *id, uint8_t gid[16]);

/* rail.c: protection domain, completion queue, memory regions. */

enum { VB_BATCH = 32 };

enum vb_comp_kind {
	VB_SENT = 1,   /* the signalled operation `seq` and all earlier ones are done */
	VB_MESSAGE,    /* len bytes are in the batch buffer at the entry's index */
	VB_IMMEDIATE,  /* imm arrived by RDMA Write with immediate */
	VB_IMM_BY_SEND,/* imm arrived in a Send */
	VB_GREETING,   /* the peer's provider greets in a Send */
	VB_NUDGE,      /* a Send to be ignored */
	VB_MALFORMED,  /* a Send that gdrcp never sends */
	VB_FAILED      /* status and vendor_err have the reason */
};

enum { VB_RECV_SIDE = 1, VB_REPOST_FAILED = 2, VB_RECVS_GONE = 4 };

struct vb_comp {
	uint8_t kind, flags;
	uint16_t slot;
	uint32_t seq, imm, len;
	uint32_t status, vendor_err;
};

struct vb_rail;
struct vb_qp;

/* A completion queue to which nothing is bound: see siwkeys.go. */
int vb_pad_open(const struct vb_api *api, struct abi_context *ctx, int cqe, struct abi_cq **out);
void vb_pad_close(const struct vb_api *api, struct abi_cq *cq);
/* vector selects one of the device's completion interrupts, from 0. */
int vb_rail_open(const struct vb_api *api, struct abi_context *ctx, int cqe, int vector, int slots,
		 uint32_t msg_bytes, struct vb_rail **out);
int vb_rail_close(struct vb_rail *r);
int vb_rail_fd(const struct vb_rail *r);
const struct abi_cq *vb_rail_cq(const struct vb_rail *r);
/* The entries that a poll removed from the completion queue. */
struct vb_polled {
	int entries; /* including those that are not reported */
	int emptied; /* nothing was left */
};

/*
 * Polls up to max (at most VB_BATCH) completions into out, copies received
 * messages to msgs at index*msg_bytes and posts their receives again. Spins up
 * to spin_us if there are none; then, with arm, requests an event and polls
 * once more, so that if it returns 0 it is safe to sleep on the fd.
 */
int vb_rail_poll(struct vb_rail *r, struct vb_comp *out, int max, uint8_t *msgs, int spin_us, int arm,
		 struct vb_polled *polled);
/* Takes one event of the completion channel; -EAGAIN without one. */
int vb_rail_event(struct vb_rail *r);
/* Blocks while pages are pinned. The address may be one that only the kernel
 * understands. */
int vb_mr_register(struct vb_rail *r, uint64_t addr, size_t bytes, int access, struct abi_mr **out);
/* Whether the library has the functions that vb_mr_import and vb_device_imports
 * call. */
int vb_can_import(const struct vb_api *api);
/* Registers bytes of the dma-buf fd from offset on, which peers access at addr.
 * Keeps no descriptor. Blocks while the exporter maps them. */
int vb_mr_import(struct vb_rail *r, int fd, uint64_t offset, size_t bytes, uint64_t addr, int access,
		 struct abi_mr **out);
int vb_mr_deregister(const struct vb_api *api, struct abi_mr *mr);

/* qp.c: queue pairs. */

enum { VB_TAG_BYTES = 8 };

enum vb_op_kind { VB_SEND = 1, VB_WRITE, VB_WRITE_IMM, VB_WRITE_THEN_SEND, VB_READ };
/* VB_READABLE: the processor may read the local memory. */
enum { VB_SIGNALED = 1, VB_FENCED = 2, VB_READABLE = 4 };

/* One work request of the engine; qp.c splits it into those of the device. */
struct vb_op {
	uint8_t kind, flags;
	uint16_t pad;
	uint32_t seq, imm, len;
	uint32_t lkey, rkey;
	uint64_t local, remote;
};

struct vb_qp_config {
	int slot, generation;
	int ops;           /* maximum number of outstanding operations, including the greeting */
	/* Work requests of the device. sends may be reduced, but not below
	 * least_sends. */
	int sends, least_sends, recvs;
	uint32_t split_bytes;
	/* Work requests of this many bytes or more are all signalled; 0: none. */
	uint32_t signal_bytes;
};

int vb_qp_open(struct vb_rail *r, struct abi_cm_id *id, struct vb_qp_config *cfg, struct vb_qp **out);
struct vb_op *vb_qp_ops(const struct vb_qp *q);
/* The send buffers, one for each outstanding operation, stride bytes apart. The
 * message of operation seq goes VB_TAG_BYTES into buffer seq % ops. */
uint8_t *vb_qp_buffers(const struct vb_qp *q, uint32_t *stride);
uint32_t vb_qp_num(const struct vb_qp *q);
/* Posts the first n of vb_qp_ops. After an error the earlier ones may be outstanding. */
int vb_qp_post(struct vb_qp *q, int n);
/* Posts the greeting as operation seq, by a zero-length Write with immediate. */
int vb_qp_greet(struct vb_qp *q, uint32_t seq, uint32_t imm);
/* Posts a Send of kind VB_GREETING or VB_NUDGE as operation seq. */
int vb_qp_tell(struct vb_qp *q, int kind, uint32_t seq, uint32_t imm);
int vb_qp_to_error(struct vb_qp *q);
int vb_qp_rnr_timer(struct vb_qp *q, int code);
/* Lets completions of the queue pair be reported. Call it before connecting. */
void vb_qp_attach(struct vb_qp *q);
/* Stops completions of the queue pair from being reported. */
void vb_qp_detach(struct vb_qp *q);
int vb_qp_close(struct vb_qp *q);

#endif
