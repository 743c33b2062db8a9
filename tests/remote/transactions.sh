#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Transactions in remote memory, over two links of which the one in use is cut while they run: nothing is inconsistent
# afterwards. The checks find each of the faults that are planted in the tables, and what a client that submits all pending
# operations again leaves behind.
#
# usage: transactions.sh tcp LOAD [FAILURES]
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
load=${2:?usage: transactions.sh tcp LOAD [FAILURES]}
failures=${3:-10}
need_programs ip nft

transactions_clean_up() {
    local status=$?
    trap - EXIT
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap transactions_clean_up EXIT
make_links 2
# shellcheck disable=SC2034  # for server.sh
{
    listen_host=0.0.0.0
    settings=('slots = 256')
}
start_server
made=$(make_volume tables 128M)
address=$(over_links "$made")
links=("$(link_argument 0)" "$(link_argument 1)")

say "planted faults"
"$load" faults 4 1 "$address" || fail "the checks have not found a fault, or found one that is not there"
# run WAY DIRECTIONS FAILURES
run() { "$load" run "$1" "$2" "$3" 100 4 1 "$address" "$server_namespace" "${links[@]}"; }
say "$failures failures"
run none both,to_server,to_client "$failures" || fail "transactions are inconsistent"
# The server has executed everything that was pending at the cut, and executes it a second time. At most failures one of the
# four clients has a pending operation that must not be executed twice.
say "all submitted again"
run resubmit to_client 8 >"$work/resubmit" || fail "transactions do not run"
cat "$work/resubmit"
inconsistent=$(sed -n '/failures with inconsistencies/,/^$/s/^| all submitted again |//p' "$work/resubmit" | cut -d'|' -f4)
[[ $inconsistent -gt 0 ]] || fail "nothing is inconsistent although operations were executed twice"
stop_server
