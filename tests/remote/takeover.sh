#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume is taken by force from a program that writes it at full speed: from then on not one byte changes.
#
# usage: takeover.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs python3

# So large that most of what is written is at a place where nothing was.
size=1G
[[ $transport != shm ]] || size=64M
start_server

has_written() { ! cmp -s -n "$(stat -L -c %s "$data")" "$data" /dev/zero; }
content() {
    python3 -c 'import sys, zlib
checksum = 0
with open(sys.argv[1], "rb") as file:
    while part := file.read(1 << 24):
        checksum = zlib.crc32(part, checksum)
print(checksum)' "$data"
}
has_stopped() { grep -q '^State:.T' "/proc/$1/status"; }

# take_from_holder running|stopped
take_from_holder() {
    local holder before status=0 after
    address=$(make_volume "$1" "$size")
    for data in "/proc/$(worker)/fd/"*; do
        [[ $(readlink "$data") != "/memfd:tiffind:$1:data"* ]] || break
    done
    set -m
    "$bin/tiffin" perf "$address" --operation write --overwrite --depth 32 --no-baseline --duration 8 \
        >"$work/holder" 2>&1 &
    holder=$!
    load_group=("$holder")
    set +m
    wait_until has_written
    if [[ $1 == stopped ]]; then
        kill -STOP "$holder"
        wait_until has_stopped "$holder"
    fi
    # There is no file system, which is found out by who has the volume.
    "$bin/mount.tiffin" "$address" "$mount_point" -o force >"$work/successor" 2>&1 || status=$?
    [[ $transport == shm ]] || ! has_ended "$holder" || fail "the old holder ended early: $(<"$work/holder")"
    before=$(content)
    [[ $status -eq 32 ]] || fail "the successor ended with $status: $(<"$work/successor")"
    grep -q "there is no tiffin file system" "$work/successor" || fail "the successor said: $(<"$work/successor")"
    if [[ $transport == shm ]]; then
        has_ended "$holder" || fail "the old holder lives and has the memory mapped"
    elif [[ $1 == stopped ]]; then
        kill -CONT "$holder"
    fi
    status=0
    wait "$holder" || status=$?
    after=$(content)
    [[ $after == "$before" ]] || fail "the checksum was $before, and is $after"
    if [[ $transport == shm ]]; then
        [[ $status -eq 137 ]] || fail "the old holder ended with $status: $(<"$work/holder")"
    else
        [[ $status -eq 1 ]] || fail "the old holder ended with $status: $(<"$work/holder")"
        grep -q "an operation failed" "$work/holder" || fail "the old holder said: $(<"$work/holder")"
    fi
    load_group=()
}

for round in 1 2; do
    say "while it writes, $round"
    take_from_holder running
    "$bin/tiffin" volume delete running --socket "$admin"
    rm "$work/running.key"
done
say "stopped while it writes, and continued afterwards"
take_from_holder stopped
say "a file system there"
use_device "$address"
mount_device
cp -a "$repository/docs" "$mount_point/docs"
unmount_device
check_device "after takeovers"
mount_device
diff -r "$repository/docs" "$mount_point/docs" >"$work/diff" || fail "the copy differs: $(head -n 5 "$work/diff")"
unmount_device
echo "passed"
