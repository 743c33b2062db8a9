#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume with a backing file: keeper and server are killed together, which is what a power failure does to their
# memory. What was synced is there after the next start, and the file system is in order.
#
# usage: backing.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/writing.sh
source "$(dirname "$0")/lib/writing.sh"
need_programs sha256sum pgrep python3

start_server
use_device "$(make_volume durable 256M --backing "$work/backing")"
mount_device

# A commit of the journal is one round trip: the record and what makes it durable go together.
round_trips() { "$bin/tiffin" status "$mount_point" | sed -n 's/.* round trips: \([0-9]*\)$/\1/p'; }
: >"$mount_point/small"
sync "$mount_point/small"
before=$(round_trips)
python3 - "$mount_point/small" <<'END'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
for i in range(50):
    os.pwrite(file, bytes([i]) * 100, 0)
    os.fsync(file)
END
count=$(($(round_trips) - before))
# There are few for which nobody waits, such as a timer's.
[[ $count -ge 50 && $count -le 60 ]] || fail "50 times fsync took $count round trips"

head -c 20000000 /dev/urandom >"$work/source"
cp "$work/source" "$mount_point/synced"
sync "$mount_point/synced"
cp "$work/source" "$mount_point/not-synced"
# start_again: after both were killed. The mount fails from now on, instead of going on with less than it was told.
start_again() {
    : >"$server_log"
    start_server
    grep -q 'read from its backing' "$server_log" || fail "the backing was not read"
    [[ ${#load_group[@]} -eq 0 ]] || stop_writing_files
    take_away -l
    wait_until has_ended "$server"
    server=""
    "$bin/fsck.tiffin" -y "$device" >"$work/fsck" || [[ $? -eq 1 ]] || fail "$(<"$work/fsck")"
    check_device "from the backing"
    mount_device
}
kill_server
start_again
cmp "$work/source" "$mount_point/synced" || fail "what was synced is not there"

for round in 1 2 3; do
    say "killed while files are written, $round"
    start_writing_files "round-$round"
    wait_until has_promised "round-$round" $((round * 3))
    kill_server
    start_again
    for ((earlier = 1; earlier <= round; earlier++)); do
        check_files "round-$earlier"
    done
done
cmp "$work/source" "$mount_point/synced" || fail "what was synced at first is not there"
unmount_device
check_device "after all"
echo "passed"
