#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A mounted file system grows with the volume of its server, several times, while a program uses it and while it is full:
# in memory alone and with a disk behind it. striped.sh has the same for several servers.
#
# usage: grow.sh tcp|shm|sdr
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/mount/lib/copies.sh
source "$(dirname "$0")/../mount/lib/copies.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs cmp python3

resize() { "$bin/tiffin" volume resize "$1" "$2" --socket "$admin"; }
grow() { "$bin/tiffin" grow "$mount_point"; }

start_server
for name in memory disk; do
    say "a volume with $name"
    options=()
    if [[ $name == disk ]]; then options=(--backing "$work/backing"); fi
    use_device "$(make_volume $name 32M "${options[@]}")"
    mount_device
    grow | grep -q "all that the device has" || fail "it grows without a volume that is larger"
    copies=0
    fill
    for megabytes in 48 64 200; do
        before=$copies
        resize $name ${megabytes}M | grep -q "tiffin grow" || fail "nothing is said of the file system"
        grow | grep -q "grown from" || fail "the file system has not grown"
        fill
        [[ $copies -gt $((before + 8)) ]] || fail "only $((copies - before)) more copies fit after growing to $megabytes MB"
    done
    unmount_device
    check_device "after it has grown"
    mount_device
    compare

    rm "$mount_point"/copy-{0,1,2}
    (
        set -e
        for ((i = 0; i < 50; i++)); do
            cp "$work/content" "$mount_point/busy"
            cmp "$work/content" "$mount_point/busy"
            sync "$mount_point/busy"
            rm "$mount_point/busy"
        done
    ) &
    busy=$!
    for ((megabytes = 210; megabytes <= 260; megabytes += 10)); do
        resize $name ${megabytes}M >/dev/null
        grow >/dev/null
    done
    wait $busy || fail "a program met an error while the volume grew"
    for ((i = 0; i < 3; i++)); do
        cp "$work/content" "$mount_point/copy-$i"
    done
    unmount_device
    check_device "at the end"
    mount_device
    compare
    unmount_device
done
stop_server
echo "passed"
