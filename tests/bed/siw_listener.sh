#!/usr/bin/env bash
# siw_listener.sh DIR: keeps in an unpacked drivers/infiniband/sw/siw of Linux 6.12 a listener alive when a TCP connection to it
# ends before siw has accepted it. Such a socket still has its listener as its endpoint, and siw takes the listener down: from then on
# connections are refused, and destroying the listener corrupts a list of the kernel's. A connection that has gone is accepted all
# the same then, and ends after siw's wait for its first words.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/bed/hook.sh
. "$here/hook.sh"
cd "$1"
hook siw_cm.c '/^static void siw_cm_llp_state_change(struct sock \*sk)/,/^}/ s/^\tcase TCP_CLOSE_WAIT:$/&\n\t\tif (cep->state == SIW_EPSTATE_LISTENING)\n\t\t\tbreak;/'
