//go:build linux && cgo

#include "table.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

static int failed(int rc)
{
	return rc ? -(errno ? errno : EIO) : 0;
}

static struct sockaddr *to_sockaddr(const struct vb_addr *a, struct sockaddr_storage *s)
{
	memset(s, 0, sizeof *s);
	if (a->family == AF_INET6) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)s;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(a->port);
		in6->sin6_scope_id = a->scope;
		memcpy(&in6->sin6_addr, a->ip, 16);
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)s;

		in->sin_family = AF_INET;
		in->sin_port = htons(a->port);
		memcpy(&in->sin_addr, a->ip, 4);
	}
	return (struct sockaddr *)s;
}

static void from_sockaddr(const struct sockaddr_storage *s, struct vb_addr *a)
{
	memset(a, 0, sizeof *a);
	if (s->ss_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)s;

		a->family = AF_INET6;
		a->port = ntohs(in6->sin6_port);
		a->scope = in6->sin6_scope_id;
		memcpy(a->ip, &in6->sin6_addr, 16);
	} else if (s->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)s;

		a->family = AF_INET;
		a->port = ntohs(in->sin_port);
		memcpy(a->ip, &in->sin_addr, 4);
	}
}

int vb_cm_open(const struct vb_api *api, struct abi_cm_channel **out)
{
	struct abi_cm_channel *ch;
	int err;

	errno = 0;
	ch = api->rdma_create_event_channel();
	if (!ch)
		return failed(-1);
	err = vb_nonblocking(ch->fd);
	if (err) {
		api->rdma_destroy_event_channel(ch);
		return err;
	}
	*out = ch;
	return 0;
}

int vb_cm_fd(const struct abi_cm_channel *ch)
{
	return ch->fd;
}

void vb_cm_close(const struct vb_api *api, struct abi_cm_channel *ch)
{
	api->rdma_destroy_event_channel(ch);
}

int vb_cm_next(const struct vb_api *api, struct abi_cm_channel *ch, struct vb_cm_event *out)
{
	struct abi_cm_event *e;

	errno = 0;
	if (api->rdma_get_cm_event(ch, &e))
		return failed(-1);
	out->event = e->event;
	out->status = e->status;
	out->id = e->id;
	out->read_in = e->conn.responder_resources;
	out->read_out = e->conn.initiator_depth;
	out->private_bytes = e->conn.private_data ? e->conn.private_data_len : 0;
	if (out->private_bytes)
		memcpy(out->private_data, e->conn.private_data, out->private_bytes);
	api->rdma_ack_cm_event(e);
	return 0;
}

int vb_cm_listen(const struct vb_api *api, struct abi_cm_channel *ch, const struct vb_addr *at,
		 int backlog, int tos, struct abi_cm_id **out)
{
	struct sockaddr_storage s;
	struct abi_cm_id *id;
	int err = failed(api->rdma_create_id(ch, &id, NULL, ABI_PS_TCP));

	if (err)
		return err;
	err = tos ? vb_id_tos(api, id, tos) : 0;
	if (!err)
		err = failed(api->rdma_bind_addr(id, to_sockaddr(at, &s)));
	if (!err)
		err = failed(api->rdma_listen(id, backlog));
	if (err) {
		api->rdma_destroy_id(id);
		return err;
	}
	*out = id;
	return 0;
}

int vb_cm_resolve(const struct vb_api *api, struct abi_cm_channel *ch, const struct vb_addr *from,
		  const struct vb_addr *to, int timeout_ms, struct abi_cm_id **out)
{
	struct sockaddr_storage src, dst;
	struct sockaddr *bind = from->family ? to_sockaddr(from, &src) : NULL;
	struct abi_cm_id *id;
	int err = failed(api->rdma_create_id(ch, &id, NULL, ABI_PS_TCP));

	if (err)
		return err;
	err = failed(api->rdma_resolve_addr(id, bind, to_sockaddr(to, &dst), timeout_ms));
	if (err) {
		api->rdma_destroy_id(id);
		return err;
	}
	*out = id;
	return 0;
}

int vb_id_ack_timeout(const struct vb_api *api, struct abi_cm_id *id, int exponent)
{
	uint8_t t = (uint8_t)exponent;

	return failed(api->rdma_set_option(id, ABI_OPTION_ID, ABI_OPTION_ID_ACK_TIMEOUT, &t, sizeof t));
}

int vb_id_tos(const struct vb_api *api, struct abi_cm_id *id, int tos)
{
	uint8_t t = (uint8_t)tos;

	return failed(api->rdma_set_option(id, ABI_OPTION_ID, ABI_OPTION_ID_TOS, &t, sizeof t));
}

int vb_id_route(const struct vb_api *api, struct abi_cm_id *id, int timeout_ms)
{
	return failed(api->rdma_resolve_route(id, timeout_ms));
}

static struct abi_conn_param conn_param(const struct vb_conn_param *p, const uint8_t *data, int bytes)
{
	return (struct abi_conn_param){
		.private_data = data,
		.private_data_len = (uint8_t)bytes,
		.responder_resources = (uint8_t)p->read_in,
		.initiator_depth = (uint8_t)p->read_out,
		.retry_count = (uint8_t)p->retry,
		.rnr_retry_count = (uint8_t)p->rnr_retry,
	};
}

int vb_id_connect(const struct vb_api *api, struct abi_cm_id *id, const struct vb_conn_param *p,
		  const uint8_t *data, int bytes)
{
	struct abi_conn_param c = conn_param(p, data, bytes);

	return failed(api->rdma_connect(id, &c));
}

int vb_id_accept(const struct vb_api *api, struct abi_cm_id *id, const struct vb_conn_param *p,
		 const uint8_t *data, int bytes)
{
	struct abi_conn_param c = conn_param(p, data, bytes);

	return failed(api->rdma_accept(id, &c));
}

int vb_id_reject(const struct vb_api *api, struct abi_cm_id *id, const uint8_t *data, int bytes)
{
	return failed(api->rdma_reject(id, data, (uint8_t)bytes));
}

int vb_id_stands(const struct vb_api *api, struct abi_cm_id *id)
{
	return failed(api->rdma_notify(id, ABI_EVENT_COMM_EST));
}

int vb_id_disconnect(const struct vb_api *api, struct abi_cm_id *id)
{
	return failed(api->rdma_disconnect(id));
}

int vb_id_destroy(const struct vb_api *api, struct abi_cm_id *id)
{
	return failed(api->rdma_destroy_id(id));
}

int vb_id_migrate(const struct vb_api *api, struct abi_cm_id *id, struct abi_cm_channel *to)
{
	return failed(api->rdma_migrate_id(id, to));
}

struct abi_context *vb_id_context(const struct abi_cm_id *id)
{
	return id->verbs;
}

const char *vb_id_device(const struct vb_api *api, const struct abi_cm_id *id)
{
	return id->verbs ? api->ibv_get_device_name(id->verbs->device) : "";
}

void vb_id_addrs(const struct abi_cm_id *id, struct vb_addr *local, struct vb_addr *remote)
{
	from_sockaddr(&id->src_addr, local);
	from_sockaddr(&id->dst_addr, remote);
}

int vb_id_port(const struct abi_cm_id *id, uint8_t gid[16])
{
	memcpy(gid, id->sgid, sizeof id->sgid);
	return id->port_num;
}
