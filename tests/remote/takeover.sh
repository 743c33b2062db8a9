#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume is taken by force from a program that writes it at full speed: from then on not one byte changes. A mount
# that has lost its volume, to a successor or by its deletion, answers EIO to everything, whatever the kernel has cached.
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
    # Longer than all of this takes on a machine that is busy.
    "$bin/tiffin" perf "$address" --operation write --overwrite --depth 32 --no-baseline --duration 300 \
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
        grep -q "an operation failed: Stale file handle" "$work/holder" || fail "the old holder said: $(<"$work/holder")"
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

# mount_at PLACE OPTIONS: sets `process`, and has the kernel cache what is there.
mount_at() {
    "$bin/mount.tiffin" "$device" "$1" -o "$2,log=$work/log-${1##*/}" || fail "mount.tiffin -o $2"
    process=$("$bin/tiffin" status "$1" | sed -n 's/^process: //p')
    ls -lR "$1/docs" >"$work/listing"
    cat "$1/docs/design.md" "$1/top" >"$work/content"
    # Names that do not exist are cached, too.
    ! stat "$1/new" "$1/docs/new" 2>/dev/null || fail "there is a file 'new'"
}
gives_eio() { ! LC_ALL=C "$@" >"$work/output" 2>&1 && grep -q "Input/output error" "$work/output"; }
is_said_to_be_shut_down() { "$bin/tiffin" status "$1" | grep -qx "state: shut down"; }
# loses_all PLACE reads|writes: the mount there, whose files `held` and `held_folder` are open, has been fenced off.
loses_all() {
    local place=$1 path
    wait_until is_said_to_be_shut_down "$place"
    for path in docs docs/design.md docs/man top new docs/new; do
        wait_until gives_eio stat "$place/$path"
    done
    wait_until gives_eio ls "$place"
    wait_until gives_eio ls "$place/docs"
    wait_until gives_eio cat "$place/top"
    wait_until gives_eio cat "$place/docs/design.md"
    for path in "$place" "$place/docs"; do
        wait_until gives_eio touch "$path/touched"
        wait_until gives_eio mkdir "$path/made"
        wait_until gives_eio mv "$path/new" "$path/moved"
    done
    # Of a mount that is read-only the kernel itself says so.
    if [[ $2 == writes ]]; then
        wait_until gives_eio tee "$place/top" <<<"written"
        wait_until gives_eio tee "$place/docs/design.md" <<<"written"
    fi
    # What was open, without a path from the top.
    wait_until gives_eio cat <&"$held"
    wait_until gives_eio ls "/proc/self/fd/$held_folder/"
    wait_until gives_eio stat "/proc/self/fd/$held_folder/remote.md"
}
hold() {
    exec {held}<"$1/docs/words.md" {held_folder}<"$1/docs"
    cat <&"$held" >"$work/content"
}
let_go() {
    exec {held}<&- {held_folder}<&-
    umount "$1"
    wait_until has_ended "$2"
}
second=$work/second third=$work/third
mkdir "$second" "$third"
mount_device
echo first >"$mount_point/top"
unmount_device

say "a reader, and somebody writes by force"
mount_at "$mount_point" ro
reader=$process
hold "$mount_point"
mount_at "$second" rw,force
loses_all "$mount_point" reads
let_go "$mount_point" "$reader"

if [[ $transport != shm ]]; then  # whose writers are killed
    say "a writer, and somebody else writes by force"
    writer=$process
    hold "$second"
    echo "never stored" >"$second/top"
    mount_at "$third" rw,force
    loses_all "$second" writes
    let_go "$second" "$writer"
    second=$third
fi

say "a writer whose volume is deleted by force"
hold "$second"
exec {unsaved}>"$second/docs/unsaved"
echo "never stored" >&"$unsaved"
"$bin/tiffin" volume delete stopped --force --socket "$admin"
loses_all "$second" writes
gives_eio sync "/proc/self/fd/$unsaved" || fail "what is lost was synced: $(<"$work/output")"
exec {unsaved}>&-
let_go "$second" "$process"
echo "passed"
