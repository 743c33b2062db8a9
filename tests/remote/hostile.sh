#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A mounted file system that is written to while clients that mean no good, and hundreds that do, use the same server:
# it goes on, and afterwards fsck.tiffin finds nothing and each file is what was written.
#
# usage: hostile.sh tcp HOSTILE_CLIENTS
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/writing.sh
source "$(dirname "$0")/lib/writing.sh"
hostile_clients=${2:?usage: hostile.sh tcp HOSTILE_CLIENTS}

metrics=127.0.0.1:$(free_port)
settings=('max_sessions = 512')
start_server
use_device "$(make_volume hostile 4G)"
mount_device

start_writing_files good
wait_until has_promised good 3
"$hostile_clients" "$port" hostile "$work/hostile.key" || fail "hostile_clients: see above"
promised=$(wc -l <"$work/promised-good")
wait_until has_promised good $((promised + 3))
stop_writing_files

# Refused and counted.
exec {connection}<>"/dev/tcp/${metrics%:*}/${metrics#*:}"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$connection"
counted=$(tr -d '\r' <&"$connection")
exec {connection}>&-
for counter in malformed refused; do
    sum=$(awk -v name="$counter" '/^tiffind_/ && index($0, name) { sum += $NF } END { printf "%d", sum }' <<<"$counted")
    [[ $sum -gt 500 ]] || fail "only $sum messages counted as $counter: $(grep "$counter" <<<"$counted")"
done
[[ $(status_of reconnections) -eq 0 ]] || fail "the mount lost its connection"

unmount_device
check_device "after hostile clients"
mount_device
check_files good
