#!/usr/bin/env bash
# siw_tos.sh DIR: has an unpacked drivers/infiniband/sw/siw of Linux 6.12 heed the type of service of an rdma_cm id, over IPv4, as the
# drivers of iWARP NICs do (cxgb4, irdma): that of who dials, and that of a listener for what it accepts. Linux's own leaves all to the
# system. Fails where that source has changed so much that a place to hook in is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/bed/hook.sh
. "$here/hook.sh"
cd "$1"
hook siw_cm.c '/^int siw_connect(/,/^}/ s/^\trv = kernel_bindconnect(/\tif (v4 \&\& id->tos_set)\n\t\tip_sock_set_tos(s->sk, id->tos);\n&/'
# What a listening socket has, those have that it accepts.
hook siw_cm.c '/^int siw_create_listen(/,/^}/ s/^\tsock_set_reuseaddr(s->sk);$/&\n\tif (addr_family == AF_INET \&\& id->tos_set)\n\t\tip_sock_set_tos(s->sk, id->tos);/'
