#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume with a backing file: keeper and server are killed together, which is what a power failure does to their
# memory. What was synced is there after the next start, and the file system is in order. A file with other content, or
# another user, becomes no backing by a slip, and what a volume has is not overwritten by one.
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
need_programs sha256sum pgrep python3 mkfs.ext4 losetup

loop=""
leave_loop() {
    local status=$?
    trap - EXIT
    [[ -z $loop ]] || losetup --detach "$loop" || status=1
    clean_up_server status
    clean_up "$status"
}
trap leave_loop EXIT

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

volume() { "$bin/tiffin" volume "$@" --socket "$admin"; }
has_data="holds data that are not a Tiffin file system; nothing was changed"
no_backing() {
    refuses "$1" volume create other 64M --backing "$2" --key-file "$work/other.key" "${@:3}"
    [[ ! -e $work/other.key && ! -e $work/state/other.volume ]] || fail "something of the volume was left behind"
}

say "files with other content"
truncate -s 64M "$work/ext4"
mkfs.ext4 -q "$work/ext4"
cp "$work/ext4" "$work/ext4.before"
no_backing "$has_data" "$work/ext4"
cmp "$work/ext4" "$work/ext4.before" || fail "a refused backing was changed"
echo "a text" >"$work/text"
no_backing "$has_data" "$work/text"
[[ $(<"$work/text") == "a text" && $(stat -c %s "$work/text") -eq 7 ]] || fail "a refused file was changed"
truncate -s 64M "$work/end"
printf x | dd of="$work/end" bs=1 seek=$(((64 << 20) - 100)) conv=notrunc status=none
no_backing "$has_data" "$work/end"
printf '%s\n' "[volume.configured]" 'size = "64M"' "backing = \"$work/ext4\"" >>"$work/tiffind.toml"
kill -HUP "$keeper"
wait_until grep -q "volume configured: backing $work/ext4: $has_data" "$server_log"
[[ ! -e $work/state/configured.volume ]] || fail "the volume of the configuration was made"

say "with such content, on purpose"
address=$(make_volume other 64M --backing "$work/ext4" --force)
for option in --quiet --dry-run; do
    refuses "$address holds a file system (ext4); nothing was written" "$bin/mkfs.tiffin" "$option" "$address"
done
refuses "it holds a file system (ext4)" "$bin/mount.tiffin" "$address" "$mount_point"
cmp "$work/ext4" "$work/ext4.before" || fail "it was changed without a flush"
"$bin/mkfs.tiffin" -q -f "$address" || fail "-f does not overwrite it"
refuses "holds tiffinfs; nothing was written" "$bin/mkfs.tiffin" "$address"
volume delete other
rm "$work/other.key"
device=$(make_volume other 64M --backing "$work/ext4")
check_device "in a new volume over the backing of another one"
volume delete other
rm "$work/other.key"

say "empty files, and those that are in use"
truncate -s 64M "$work/zeros"
if [[ $(id -u) -eq 0 ]] && loop=$(losetup --find --show "$work/zeros" 2>"$work/losetup"); then
    no_backing "is in use ($loop)" "$work/zeros"
    no_backing "is in use ($loop)" "$work/zeros" --force
    losetup --detach "$loop"
else
    echo "not run: no loop device here: $(cat "$work/losetup" 2>/dev/null)"
fi
loop=""
no_backing "is another volume's backing" "$work/backing"
device=$(make_volume other 64M --backing "$work/zeros")
"$bin/mkfs.tiffin" -q "$device" || fail "an empty volume needs -f"
check_device "in a file of zeros"
echo "passed"
