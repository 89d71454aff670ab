#!/usr/bin/env bash
# siw_listener.sh DIR: keeps in an unpacked drivers/infiniband/sw/siw of Linux 6.12 a listener alive when a TCP connection to it
# ends early. Without this, eight connections of a port scan are enough for siw to refuse all others, and destroying the listener
# corrupts a list of the kernel's. Fails where that source has changed so much that a place to hook in is not found.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/bed/hook.sh
. "$here/hook.sh"
cd "$1"
# Until siw has accepted a socket, it has its listener for an endpoint, which its end took down. It is accepted, and ends after the wait
# for its first words.
hook siw_cm.c '/^static void siw_cm_llp_state_change(struct sock \*sk)/,/^}/ s/^\tcase TCP_CLOSE_WAIT:$/&\n\t\tif (cep->state == SIW_EPSTATE_LISTENING)\n\t\t\tbreak;/'
# A socket that is given up where it is accepted was given up once more by the work that its end had queued: by then another may lie in
# its place, whose endpoint may still be its listener, which lost a reference that way.
hook siw_cm.c '/^static void siw_accept_newconn(/,/^}/ s/^\t*siw_cancel_mpatimer(new_cep);$/&\n\t\t\t\tnew_cep->sock = NULL;\n\t\t\t\tnew_cep->state = SIW_EPSTATE_CLOSED;/'
