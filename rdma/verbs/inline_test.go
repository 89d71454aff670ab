//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma"
)

// fakeCM is a librdmacm whose every step succeeds immediately. limit is the
// body that inspects the requested attributes a of a queue pair, and post that
// of ibv_post_send for each wr.
func fakeCM(limit, post string) map[string]string {
	return map[string]string{
		"rdma_get_devices": `
			static int poll_cq(struct abi_cq *cq, int n, struct abi_wc *wc) { return 0; }
			static int notify(struct abi_cq *cq, int s) { return 0; }
			static int post_recv(struct abi_qp *q, struct abi_recv_wr *wr, struct abi_recv_wr **bad) { return 0; }
			static int post_send(struct abi_qp *q, struct abi_send_wr *wr, struct abi_send_wr **bad) {
				for (; wr; wr = wr->next) {` + post + `} return 0; }
			static struct { char ops[16]; int node, transport; char name[64]; } d = { .name = "fake0" };
			static struct abi_context c;
			void *rdma_get_devices(int *n) {
				static struct abi_context *list[2] = { &c };
				if (!c.device) { c.device = (void *)&d; c.async_fd = eventfd(0, 0);
					c.ops.poll_cq = poll_cq; c.ops.req_notify_cq = notify;
					c.ops.post_recv = post_recv; c.ops.post_send = post_send; }
				return list; }`,
		"rdma_free_devices": `void rdma_free_devices(void *l) {}`,
		"rdma_create_event_channel": `struct chan { int fd; int kind; struct abi_cm_id *id; };
			void *rdma_create_event_channel(void) { struct chan *ch = calloc(1, sizeof *ch); ch->fd = eventfd(0, 0); return ch; }
			static int tell(struct abi_cm_id *id, int kind) { struct chan *ch = (void *)id->channel; uint64_t one = 1;
				ch->kind = kind; ch->id = id; write(ch->fd, &one, 8); return 0; }`,
		"rdma_destroy_event_channel": `void rdma_destroy_event_channel(struct chan *ch) { close(ch->fd); free(ch); }`,
		"rdma_get_cm_event": `int rdma_get_cm_event(struct chan *ch, struct abi_cm_event **out) { uint64_t n;
			static char hello[6] = { 'g', 'd', 'r', 'v', 1, 0 };
			if (read(ch->fd, &n, 8) != 8) return -1;
			struct abi_cm_event *e = calloc(1, sizeof *e); e->id = ch->id; e->event = ch->kind;
			if (e->event == 9) { e->conn.private_data = hello; e->conn.private_data_len = 6; }
			*out = e; return 0; }`,
		"rdma_ack_cm_event": `int rdma_ack_cm_event(void *e) { free(e); return 0; }`,
		"rdma_create_id": `int rdma_create_id(void *ch, struct abi_cm_id **id, void *x, int ps) {
			*id = calloc(1, sizeof **id); (*id)->channel = ch; (*id)->port_num = 1; return 0; }`,
		"rdma_destroy_id":    `int rdma_destroy_id(void *id) { free(id); return 0; }`,
		"rdma_resolve_addr":  `int rdma_resolve_addr(struct abi_cm_id *id, void *s, void *d, int ms) { id->verbs = &c; return tell(id, 0); }`,
		"rdma_resolve_route": `int rdma_resolve_route(struct abi_cm_id *id, int ms) { return tell(id, 2); }`,
		"rdma_set_option":    `int rdma_set_option(void) { return 0; }`,
		"rdma_connect":       `int rdma_connect(struct abi_cm_id *id, void *p) { return tell(id, 9); }`,
		"rdma_disconnect":    `int rdma_disconnect(void *id) { return 0; }`,
		"rdma_create_qp": `int rdma_create_qp(struct abi_cm_id *id, void *pd, struct abi_qp_init_attr *a) {` + limit + `
			id->qp = calloc(1, sizeof *id->qp); id->qp->context = id->verbs; return 0; }`,
		"rdma_destroy_qp": `void rdma_destroy_qp(struct abi_cm_id *id) { free(id->qp); id->qp = 0; }`,
		"ibv_modify_qp":   `int ibv_modify_qp(void) { return 0; }`,
	}
}

func dialFake(t *testing.T, limit, post string) error {
	r := fakeRail(t, aRoCE, fakeCM(limit, post))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := r.Dial(ctx, netip.MustParseAddrPort("192.0.2.1:7474"), nil)
	if err != nil {
		return err
	}
	t.Cleanup(func() { c.Close() })
	_, err = c.Post([]rdma.WR{{Op: rdma.OpSend, Msg: make([]byte, 60)}})
	return err
}

// TestInlineRefusedWithoutErrno: bnxt_re of rdma-core 60 and earlier accepts 96 bytes, and
// for more returns NULL without setting errno (bnxt_re_check_qp_limits).
func TestInlineRefusedWithoutErrno(t *testing.T) {
	withoutTargets(t)
	if err := dialFake(t, `if (a->cap.max_inline_data > 96) return -1;`, ``); err != nil {
		t.Errorf("no queue pair on Broadcom's devices: %v", err)
	}
}

// TestInlineRefusedWithAnotherErrno: a driver may refuse inline data with any
// error. An error with another cause is returned.
func TestInlineRefusedWithAnotherErrno(t *testing.T) {
	withoutTargets(t)
	for _, number := range []string{"ENOTSUP", "524"} {
		if err := dialFake(t, `if (a->cap.max_inline_data) { errno = `+number+`; return -1; }`, ``); err != nil {
			t.Errorf("%s: %v", number, err)
		}
	}
	if err := dialFake(t, `errno = EMFILE; return -1;`, ``); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a queue pair that cannot be made: %v", err)
	}
}

// TestLessInlineGranted: hns (HIP08) makes the queue pair, and reports in the attributes
// that it accepts 32 bytes. More in a work request is EINVAL (check_inl_data_len).
func TestLessInlineGranted(t *testing.T) {
	withoutTargets(t)
	err := dialFake(t, `if (a->cap.max_inline_data > 32) a->cap.max_inline_data = 32;`,
		`if ((wr->send_flags & ABI_SEND_INLINE) && wr->sg_list->length > 32) { *bad = wr; return EINVAL; }`)
	if err != nil {
		t.Errorf("post on a device that granted 32 bytes of inline data: %v", err)
	}
}
