#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Two links that are well, on a machine that is not: three programs take all processors, while fio writes and reads. A link
# whose threads get no processor must not be taken for one that has failed: at most one is given up in ten minutes.
#
# usage: busy_links.sh tcp|sdr SECONDS
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
seconds=${2:?usage: busy_links.sh tcp|sdr SECONDS}
need_programs fio

takers=()
busy_clean_up() {
    local status=$?
    trap - EXIT
    [[ ${#takers[@]} -eq 0 ]] || kill "${takers[@]}" 2>/dev/null || true
    clean_up_server status
    clean_up "$status"
}
trap busy_clean_up EXIT

listen_host=0.0.0.0
start_server
address=$(make_volume files 512M)
use_device "${address/127.0.0.1:$port/127.0.0.1:$port+127.0.0.2:$port}"
mount_device
for _ in 1 2 3; do
    while :; do :; done &
    takers+=($!)
done
fio --name=load --directory="$mount_point" --size=100M --numjobs=2 --rw=randrw --bs=4k --ioengine=libaio --iodepth=16 \
    --fsync=64 --time_based --runtime="$seconds" --output-format=terse >"$work/fio" || fail "fio: $(<"$work/fio")"
kill "${takers[@]}"
takers=()
given_up=$(sum_of 'link [12] failures')
say "links given up: $given_up, suspicions: $(sum_of 'link [12] suspicions'), failovers: $(status_of failovers), in $seconds s"
[[ $(status_of reconnections) -eq 0 ]] || fail "the session was lost: $(grep -E 'link|reconnect' "$log")"
[[ $given_up -le $(((seconds + 599) / 600)) ]] || fail "$given_up links given up: $(grep -E 'link' "$log")"
unmount_device
stop_server
