#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A reader's key mounts a volume read-only, and allows nothing else.
#
# usage: reader_key.sh [tcp|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

settings=('probe_interval_ms = 100' 'lease_timeout_s = 2')
start_server
use_device "$(make_volume shared 128M)"
"$bin/tiffin" volume info shared --socket "$admin" --reader-key-file "$work/reader.key" >/dev/null
grep -qxE 'reader:[0-9a-f]{64}' "$work/reader.key" || fail "the key file: $(<"$work/reader.key")"
[[ $(stat -c %a "$work/reader.key") == 600 ]] || fail "others may read the key"
! grep -qF "$(cut -c 8- "$work/reader.key")" "$work/shared.key" || fail "it is the volume's key"
second=$work/second
mkdir "$second"
reader_device=${device/shared.key/reader.key}


say "beside a writer"
mount_device
echo content >"$mount_point/file"
sync "$mount_point/file"
refuses "is being written by" "$bin/mount.tiffin" "$reader_device" "$second" -o ro

say "a writer that is silent is not ended by a reader"
writer=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
kill -STOP "$writer"
sleep 3
refuses "is being written by" "$bin/mount.tiffin" "$reader_device" "$second" -o ro
kill -CONT "$writer"
echo more >>"$mount_point/file"
sync "$mount_point/file"
unmount_device

say "alone"
allows_reading="allows only to read it"
refuses "$allows_reading" "$bin/mount.tiffin" "$reader_device" "$mount_point"
refuses "$allows_reading" "$bin/mkfs.tiffin" -f "$reader_device"
refuses "$allows_reading" "$bin/fsck.tiffin" -y "$reader_device"
refuses "does not allow to take it over" "$bin/mount.tiffin" "$reader_device" "$mount_point" -o ro,force
"$bin/fsck.tiffin" -n "$reader_device" >"$work/fsck" || fail "$(<"$work/fsck")"
"$bin/mount.tiffin" "$reader_device" "$mount_point" -o ro || fail "mount -o ro"
[[ $(<"$mount_point/file") == $'content\nmore' ]] || fail "the file: $(<"$mount_point/file")"
! "$bin/mount.tiffin" "$reader_device" "$mount_point" -o remount,rw 2>"$work/remount" || fail "remounted for writing"
! echo no 2>/dev/null >"$mount_point/no" || fail "written"
reader=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
umount "$mount_point"
wait_until has_ended "$reader"

say "memory of this host is not handed out for it"
shm=${reader_device/transport=$transport/transport=shm}
refuses "shm needs the volume's key" "$bin/mount.tiffin" "$shm" "$mount_point" -o ro
"$bin/mount.tiffin" "${shm/transport=shm/transport=auto}" "$mount_point" -o ro || fail "transport=auto"
"$bin/tiffin" status "$mount_point" >"$work/status"
! grep -q "transport: shm" "$work/status" || fail "shared memory: $(<"$work/status")"
reader=$(sed -n 's/^process: //p' "$work/status")
umount "$mount_point"
wait_until has_ended "$reader"

stop_server
echo "passed"
