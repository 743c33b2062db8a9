#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume that cannot come up: it does not fit into the memory, when it is made or when the server starts, or its
# state file is damaged. Nothing is left of one that was not made, the others are served meanwhile, by the same
# process, and it is served itself once the cause is gone.
#
# usage: bad_volume.sh tcp [--cgroup]: with a memory limit of a control group; ends with 77 where there are none
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs pgrep prlimit

cgroup=""
leave_cgroup() {
    local status=$?
    trap - EXIT
    clean_up_server status
    [[ -z $cgroup ]] || rmdir "$cgroup" || status=1
    clean_up "$status"
}
trap leave_cgroup EXIT

volume() { "$bin/tiffin" volume "$@" --socket "$admin"; }
# goes_on: the mounted volume, from the process that served it before.
goes_on() {
    [[ $(worker) == "$serving" ]] || fail "another process serves: $(tail -n 5 "$server_log")"
    echo "$RANDOM" >"$work/line"
    cp "$work/line" "$mount_point/line"
    sync "$mount_point/line"
}
is_served() { [[ $(volume list) == *"$1"$'\t'[0-9]* ]]; }
# makes_too_large TEXT TEXT-WITH-BACKING: nothing of it is left.
makes_too_large() {
    serving=$(worker)
    refuses "$1" volume create large 512M
    refuses "$2" volume create large 512M --backing "$work/large"
    [[ ! -e $work/state/large.volume ]] || fail "the state of the volume was left behind"
    [[ ! -e $work/large ]] || fail "the backing of the volume was left behind"
    refuses "there is no volume large" volume info large
    goes_on
    volume create later 4M --key-file "$work/later.key"
    goes_on
    refuses "cannot be resized" volume resize later 512M
    goes_on
    volume delete later
    rm "$work/later.key"
}
# starts_with_too_large TEXT: with a volume of 512M that was made without a limit.
starts_with_too_large() {
    start_server
    serving=$(worker)
    is_served small || fail "the other volume is not served: $(volume list)"
    [[ $(volume list) == *$'big\tnot served: '*"$1"* ]] || fail "the list says: $(volume list)"
    refuses "$1" volume info big
    refuses "$1" volume create big 4M
    refuses "$1" volume delete big
    "$bin/mkfs.tiffin" -q -f "$device"
    mount_device
    goes_on
}

without_cgroup() {
    say "limited by memory_limit"
    mount_device
    serving=$(worker)
    refuses "memory_limit" volume create large 64G
    [[ ! -e $work/state/large.volume ]] || fail "the state of the volume was left behind"
    goes_on

    say "limited by the size of files"
    unmount_device
    stop_server
    limited=(prlimit --fsize=134217728:unlimited)
    server_prefix=("${limited[@]}")
    start_server
    "$bin/mkfs.tiffin" -q -f "$device"
    mount_device
    makes_too_large "cannot be made: File too large" "has no room for the volume"
    unmount_device
    stop_server
    server_prefix=()
    start_server
    volume create big 512M --key-file "$work/big.key"
    stop_server
    server_prefix=("${limited[@]}")
    starts_with_too_large "volume big: cannot be brought up from $work/state/big.volume: File too large"
    prlimit --pid "$(worker)" --fsize=unlimited:unlimited
    kill -HUP "$keeper"
    wait_until is_served big
    goes_on
    unmount_device
    stop_server

    say "damaged state file"
    server_prefix=()
    cp "$work/state/big.volume" "$work/good"
    printf 'x' | dd of="$work/state/big.volume" bs=1 seek=40 conv=notrunc status=none
    starts_with_too_large "$work/state/big.volume is damaged"
    cp "$work/good" "$work/state/big.volume"
    kill -HUP "$keeper"
    wait_until is_served big
    goes_on
    unmount_device
    stop_server
}

start_server
use_device "$(make_volume small 16M)"

if [[ ${2:-} != --cgroup ]]; then
    without_cgroup
    echo "passed"
    exit 0
fi

volume create big 512M --key-file "$work/big.key"
stop_server
say "limited by a control group"
make_cgroup() {
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then
        cgroup=/sys/fs/cgroup/tiffin-test-$$
        mkdir "$cgroup" && echo 256M >"$cgroup/memory.max" && echo 0 >"$cgroup/memory.swap.max"
    else
        cgroup=/sys/fs/cgroup/memory/tiffin-test-$$
        mkdir "$cgroup" && echo 256M >"$cgroup/memory.limit_in_bytes"
    fi
}
if ! make_cgroup 2>"$work/cgroup"; then
    [[ -z $cgroup || ! -d $cgroup ]] || rmdir "$cgroup"
    cgroup=""
    echo "SKIPPED: no control group can be made here: $(<"$work/cgroup")"
    exit 77
fi
# shellcheck disable=SC2016  # its own arguments
server_prefix=(sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cgroup")
starts_with_too_large "volume big: its 512 MiB do not fit"
makes_too_large "do not fit" "do not fit"
! grep "was ended by signal" "$server_log" || fail "the server was killed"
unmount_device
stop_server
echo "passed"
