#!/usr/bin/env bash
# rxe_gsi.sh DIR: keeps in an unpacked drivers/infiniband/sw/rxe of Linux 6.12 a device's connection manager alive when a port goes
# down. Without this, the first message that it cannot send (there is no route from an interface that is down) flushes the receives
# of queue pair 1, which nobody posts again: no connection is made over that device any more. On real devices a failed datagram
# does not touch the receives (InfiniBand Architecture Specification, volume 1, 10.3.1: the state SQE). Fails where that source has
# changed so much that a place to hook in is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/bed/hook.sh
. "$here/hook.sh"
cd "$1"
hook rxe_req.c '/^int rxe_requester(/,/^}/ s/^\trxe_qp_error(qp);$/\tif (qp_type(qp) != IB_QPT_GSI)\n\t&/'
hook rxe_comp.c '/^\t\tcase COMPST_ERROR:/,/goto exit/ s/^\t\t\trxe_qp_error(qp);$/\t\t\tif (qp_type(qp) != IB_QPT_GSI)\n\t&/'
