#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume with a backing file: keeper and server are killed together, which is what a power failure does to their
# memory. What was synced is there after the next start, and the file system is in order.
set -euo pipefail
# shellcheck source=tests/remote/lib/tiffind.sh
source "$(dirname "$0")/lib/tiffind.sh"

nobody_has_the_lease() { "$bin/tiffin" volume info durable "${admin[@]}" | grep -q '^writer: *nobody'; }

start_server
create_volume durable 256M --backing "$work/backing"
"$bin/mkfs.tiffin" -q "$address"
"$bin/mount.tiffin" "$address" "$mount_point"
head -c 20000000 /dev/urandom >"$work/source"
cp "$work/source" "$mount_point/synced"
sync "$mount_point/synced"
cp "$work/source" "$mount_point/not-synced"
child=$(worker)
kill -9 "$server" "$child"
wait "$server" 2>/dev/null || true
server=
wait_until gone "$child"
# The mount fails from now on, instead of going on with less than it was told.
start_server
grep -q 'read from its backing' "$work/log" || fail "the backing was not read"
umount -l "$mount_point"
"$bin/fsck.tiffin" -y "$address" >"$work/fsck" || [[ $? -eq 1 ]] || fail "$(cat "$work/fsck")"
# Its old session may still have the lease.
wait_until "$bin/mount.tiffin" -o force "$address" "$mount_point"
cmp "$work/source" "$mount_point/synced" || fail "what was synced is not there"
fusermount3 -u "$mount_point"
wait_until nobody_has_the_lease
"$bin/fsck.tiffin" -n "$address" >"$work/fsck" || fail "$(cat "$work/fsck")"
