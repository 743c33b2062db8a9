#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume has one writer, or any number of readers. Who comes second is told who is there, and never that the
# volume is damaged; who reads while somebody takes the volume by force gets EIO and a line that says why. A volume
# in use is not deleted.
#
# usage: in_use.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs pgrep sha256sum

settings=('probe_interval_ms = 100' 'lease_timeout_s = 2')
start_server
use_device "$(make_volume shared 128M)"
second=$work/second third=$work/third
mkdir "$second" "$third"
this_host=$(hostname)

# keeps_off TEXT COMMAND...: refuses() it, and never says that the volume is damaged.
keeps_off() {
    refuses "$@"
    [[ $refusal != *damaged* && $refusal != *"there is no tiffin"* ]] || fail "${*:2} said '$refusal'"
}
# mount_at PLACE OPTIONS: sets `process`, and `logs[PLACE]`.
declare -A logs
mount_at() {
    logs[$1]=$work/log-$RANDOM$RANDOM
    "$bin/mount.tiffin" "$device" "$1" -o "$2,log=${logs[$1]}" || fail "mount.tiffin -o $2"
    process=$("$bin/tiffin" status "$1" | sed -n 's/^process: //p')
}
unmount() {
    umount "$1"
    wait_until has_ended "$2"
}
# never_damaged: what the logs of all mounts have not said.
never_damaged() {
    ! grep -i "damaged\|checksum\|euclean\|structure needs" "$work"/log* || fail "a mount thinks that the volume is damaged"
}
delete_volume() { "$bin/tiffin" volume delete shared --socket "$admin" "$@"; }

say "a busy writer, and 12 times a reader"
mount_at "$mount_point" rw
writer=$process
write_busily() {
    local number
    for ((number = 0; ; number++)); do
        mkdir -p "$mount_point/$((number % 7))" &&
            head -c $((RANDOM * 3)) /dev/urandom >"$mount_point/$((number % 7))/$((number % 100))" &&
            { [[ $((number % 10)) -ne 0 ]] || sync -f "$mount_point"; } || return 1
        [[ $((number % 3)) -ne 0 ]] || rm -rf "${mount_point:?}/$(((number + 3) % 7))"
    done
}
set -m
write_busily 2>"$work/busy" &
load_group=("$!")
set +m
for _ in {1..12}; do
    keeps_off "is being written by $this_host, process $writer" "$bin/mount.tiffin" "$device" "$second" -o ro
done
keeps_off "is being written by $this_host, process $writer" "$bin/fsck.tiffin" -n "$device"
keeps_off "is being written by $this_host, process $writer" "$bin/tiffin" info "$device"
keeps_off "volume shared is in use by $this_host, process $writer (writes)" delete_volume
end_group TERM
unmount "$mount_point" "$writer"

say "two readers, and nobody who writes"
mount_at "$mount_point" ro
first_reader=$process
mount_at "$second" ro
second_reader=$process
find "$second" -type f -exec sha256sum {} + >"$work/sums"
by="is being read by $this_host, process"
keeps_off "$by" "$bin/mount.tiffin" "$device" "$third"
keeps_off "$by" "$bin/mkfs.tiffin" -f "$device"
keeps_off "$by" "$bin/fsck.tiffin" -f -y "$device"
keeps_off "(reads); $this_host, process" delete_volume
unmount "$mount_point" "$first_reader"
keeps_off "$by $second_reader" "$bin/mount.tiffin" "$device" "$third"
"$bin/fsck.tiffin" -n "$device" >"$work/fsck" || fail "$(<"$work/fsck")"

say "the last reader becomes the writer, and is one"
if "$bin/mount.tiffin" "$device" "$second" -o remount,rw; then
    keeps_off "is being written by $this_host, process $second_reader" "$bin/mount.tiffin" "$device" "$third" -o ro
    echo mine >"$second/mine"
    sync "$second/mine"
else
    fail "remount,rw"
fi
unmount "$second" "$second_reader"

say "a server that is started again knows its readers"
mount_at "$mount_point" ro
kill_worker
has_come_back() { "$bin/tiffin" status "$mount_point" | grep -q "reconnections: [1-9]"; }
wait_until has_come_back
keeps_off "$by $process" "$bin/mount.tiffin" "$device" "$third"
unmount "$mount_point" "$process"

say "a reader that is killed stands in nobody's way"
mount_at "$mount_point" ro
kill -KILL "$process"
wait_until has_ended "$process"
umount -l "$mount_point"
mount_taken() { "$bin/mount.tiffin" "$device" "$mount_point" -o "log=$work/log-after-reader" 2>/dev/null; }
wait_until mount_taken
process=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
unmount "$mount_point" "$process"

say "a writer that is killed makes room after its silence, for a reader, too"
mount_at "$mount_point" rw
echo unflushed >"$mount_point/unflushed"
sync "$mount_point/unflushed"
kill -KILL "$process"
wait_until has_ended "$process"
umount -l "$mount_point"
read_taken() { "$bin/mount.tiffin" "$device" "$mount_point" -o "ro,log=$work/log-after-writer" 2>/dev/null; }
wait_until read_taken
process=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
[[ $(<"$mount_point/unflushed") == unflushed ]] || fail "the reader does not see what was synced"

say "a writer by force, under a reader that reads"
reader=$process
read_busily() {
    while true; do
        echo 2 2>/dev/null >/proc/sys/vm/drop_caches
        find "$mount_point" -type f -exec cat {} + >/dev/null 2>>"$work/reading" || return 0
    done
}
read_busily &
reading=$!
mount_at "$second" rw,force
for i in {1..100}; do
    head -c 20000 /dev/urandom >"$second/forced-$i"
done
sync -f "$second"
wait "$reading"
grep -q "Input/output error" "$work/reading" || fail "the reader did not get EIO: $(head -n 3 "$work/reading")"
! grep -v "Input/output error" "$work/reading" || fail "the reader got other errors"
grep -q "another client writes the volume now" "$work/log-after-writer" || fail "the reader's log: $(<"$work/log-after-writer")"
umount -l "$mount_point"
wait_until has_ended "$reader"
unmount "$second" "$process"
never_damaged
check_device "after all of them"

say "deleted by force"
mount_at "$mount_point" rw
keeps_off "is in use by $this_host, process $process (writes)" delete_volume
echo still >"$mount_point/still"
sync "$mount_point/still"
delete_volume --force
# Over shm the mount still has the memory until it gets the notice.
is_refused() { ! { echo more >"$mount_point/more" && sync "$mount_point/more"; } 2>/dev/null; }
[[ $transport != shm ]] || wait_until is_refused
is_refused || fail "the deleted volume is written"
umount -l "$mount_point"
wait_until has_ended "$process"
keeps_off "there is no volume shared" delete_volume --force
make_volume_again() { rm "$work/shared.key" && make_volume shared 16M >/dev/null; }
make_volume_again
"$bin/mkfs.tiffin" -q -f "$device"
delete_volume
echo "passed"
