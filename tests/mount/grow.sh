#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A mounted volume grows with its image, several times, while programs use it and while it is full; after SIGKILL it
# has the old size or the new one.
#
# usage: grow.sh DEVICE
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
# shellcheck source=tests/mount/lib/copies.sh
source "$(dirname "$0")/lib/copies.sh"
use_device "$1" 32M
image=${device#file:}

size_of_volume() { "$bin/tiffin" info --json "$device" | python3 -c 'import json, sys; print(json.load(sys.stdin)["space"]["total_blocks"] * 4096)'; }
grow_to() {
    truncate -s "$1" "$image"
    "$bin/tiffin" grow "$mount_point"
}

mount_device
"$bin/tiffin" grow "$mount_point" | grep -q "all that the device has" || fail "it grows without an image that is longer"

fill
for size in 48M 63M 200M; do
    before=$copies
    grow_to "$size"
    fill
    [[ $copies -gt $((before + 8)) ]] || fail "only $((copies - before)) more copies fit after growing to $size"
done
unmount_device
check_device "after it has grown"
mount_device
compare

# A program that reads and writes all the time does not notice. The volume is full: it gets room before it starts.
rm "$mount_point"/copy-{0,1,2,3,4,5}
(
    set -e
    for ((i = 0; i < 100; i++)); do
        cp "$work/content" "$mount_point/busy"
        cmp "$work/content" "$mount_point/busy"
        rm "$mount_point/busy"
    done
) &
busy=$!
for ((megabytes = 210; megabytes <= 300; megabytes += 10)); do
    grow_to "${megabytes}M" >/dev/null
done
wait $busy || fail "a program met an error while the volume grew"
for ((i = 0; i < 6; i++)); do
    cp "$work/content" "$mount_point/copy-$i"
done
# Not syncfs, of which FUSE does not tell the daemon.
sync "$mount_point"/copy-{0,1,2,3,4,5}

# Killed at any time.
for ((round = 1; round <= 6; round++)); do
    old=$((300 + (round - 1) * 7))
    new=$((old + 7))
    truncate -s ${new}M "$image"
    "$bin/tiffin" grow "$mount_point" >"$work/grow" 2>&1 &
    growing=$!
    sleep "0.00$((round * 9 % 10))"
    kill_server
    wait $growing || true
    take_dead_mount
    size=$(size_of_volume)
    [[ $size -eq $((old << 20)) || $size -eq $((new << 20)) ]] || fail "killed while it grew, the volume has $size bytes"
    mount_device
    "$bin/tiffin" grow "$mount_point" >/dev/null
    compare
done
# An image that was cut off is no reason to say that all is well.
long=$(stat --format %s "$image")
truncate -s 32M "$image"
! "$bin/tiffin" grow "$mount_point" >"$work/grow" 2>&1 || fail "an image that is too short may be grown: $(<"$work/grow")"
grep -q "has become shorter" "$log" || fail "the log does not say that the image is too short"
truncate -s "$long" "$image"
# What was cut off is gone.
take_away
wait_until has_ended "$server"
server=""
use_device "$device" 100M
mount_device
# Somebody else may not.
if [[ $(id -u) -eq 0 ]]; then
    chmod 755 "$mount_point"
    truncate -s 400M "$image"
    ! setpriv --reuid 65534 --clear-groups "$bin/tiffin" grow "$mount_point" 2>"$work/refused" ||
        fail "anybody may grow the volume"
fi
unmount_device
check_device "at the end"
echo "passed"
