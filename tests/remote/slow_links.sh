#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Links that are well, and so slow that a request takes seconds: none is given up for that, and the work gets done.
#
# usage: slow_links.sh tcp|sdr KBIT_PER_S one|standby|spread [ROUNDS]      one: link
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
rate_kbit=${2:?usage: slow_links.sh tcp|sdr KBIT_PER_S one|standby|spread [ROUNDS]}
policy=${3:-one}
mapfile -t rounds < <(seq "${4:-3}")
need_programs ip nft tc

slow_clean_up() {
    local status=$?
    trap - EXIT
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap slow_clean_up EXIT
make_links 2

listen_host=0.0.0.0
start_server
device_address=$(make_volume files 256M)
if [[ $policy == one ]]; then
    use_device "${device_address/127.0.0.1:$port/$(server_address 0):$port}"
else
    use_device "$(over_links "$device_address")&links=$policy"
fi
mount_device
for link in 0 1; do
    for device in "client$link" "server$link"; do
        in_wire tc qdisc add dev "$device" root tbf rate "${rate_kbit}kbit" burst 16k limit 200k
    done
done
# Each behind a rest, as what is heard just before hides it.
for round in "${rounds[@]}"; do
    sleep 2
    head -c 2M /dev/urandom >"$work/source"
    timeout 120 cp "$work/source" "$mount_point/copy$round" || fail "cp ended with $?"
    timeout 120 sync -f "$mount_point/copy$round" || fail "sync ended with $?: $(tail -5 "$log")"
    cp "$work/source" "$work/source$round"
done
# From the server, whose answers take as long.
echo 1 2>/dev/null >/proc/sys/vm/drop_caches || echo "not run: reading from the server: no permission"
for round in "${rounds[@]}"; do
    sleep 2
    timeout 120 cmp "$work/source$round" "$mount_point/copy$round" || fail "the copy differs"
done
given_up=$(sum_of 'link [12] failures')
say "links given up: $given_up, suspicions: $(sum_of 'link [12] suspicions'), failovers: $(status_of failovers)"
[[ $(status_of reconnections) -eq 0 ]] || fail "the session was lost: $(grep -E 'link|reconnect' "$log")"
# None, but for a busy machine's.
[[ $given_up -le 1 ]] || fail "$given_up links given up: $(grep -E 'link' "$log")"
unmount_device
stop_server
