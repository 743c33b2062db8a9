#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# One of two links is cut at some moment of a mount, a growth, the end of the serving process, a takeover, and an unmount with
# data that is not stored yet: each is done over the other link, and the content is what was written.
#
# usage: cut_moments.sh tcp|sdr [ROUNDS]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
rounds=${2:-6}
need_programs ip nft python3

successor=$work/successor
mkdir "$successor"
cut_moments_clean_up() {
    local status=$?
    trap - EXIT
    umount -l "$successor" 2>/dev/null || true
    repair_links 0 1 2>/dev/null || true
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap cut_moments_clean_up EXIT
make_links 2

listen_host=0.0.0.0
start_server
size_mib=64
address=$(make_volume moments ${size_mib}M)
use_device "$(over_links "$address")"

cuts=0
cuts_within=0
# while_cut NAME COMMAND...: cuts a link some milliseconds after the command has begun, and repairs it when that has ended.
while_cut() {
    local name=$1 kind=${cut_kinds[$((cuts % ${#cut_kinds[@]}))]} victim=$((cuts / 2 % 2)) delay_ms=$((cuts * 13 % 70)) process status=0
    shift
    "$@" >"$work/said" 2>&1 &
    process=$!
    pause "0.0$((delay_ms / 10))$((delay_ms % 10))"
    has_ended "$process" || cuts_within=$((cuts_within + 1))
    cut_link "$victim" "$kind"
    wait "$process" || status=$?
    repair_links 0 1
    cuts=$((cuts + 1))
    [[ $status -eq 0 ]] || fail "$name, link $((victim + 1)) $kind after $delay_ms ms: status $status: $(<"$work/said")"
}
# A good link that looked silent for a moment may rest for some seconds.
are_well() {
    local states
    states=$(status_of 'link [12]' | tr '\n' ' ')
    [[ $states == "active ready " || $states == "ready active " ]]
}
poll_s=0.2
make_file() { head -c 3000000 /dev/urandom >"$work/content" && cp "$work/content" "$mount_point/file"; }
grow() {
    "$bin/tiffin" volume resize moments ${size_mib}M --socket "$admin" && "$bin/tiffin" grow "$mount_point"
}
replace_worker() {
    kill_worker
    dd if="$work/content" of="$mount_point/synced" conv=fsync status=none
}
mount_it() { "$bin/mount.tiffin" "$device" "$1" -o "log=$log,force"; }

mount_device
make_file
unmount_device
for ((i = 0; i < rounds; i++)); do
    say "round $i"
    while_cut mount mount_it "$mount_point"
    server=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
    cmp "$work/content" "$mount_point/file" || fail "after the mount of round $i"
    wait_until are_well
    size_mib=$((size_mib + 4))
    while_cut growth grow
    grep -q "grown .*to $size_mib MiB" "$work/said" || fail "growth: $(<"$work/said")"
    wait_until are_well
    while_cut "the end of the serving process" replace_worker
    cmp "$work/content" "$mount_point/synced" || fail "after the end of the serving process in round $i"
    wait_until are_well
    make_file
    sync "$mount_point"
    while_cut takeover mount_it "$successor"
    cmp "$work/content" "$successor/file" || fail "after the takeover of round $i"
    ! cp "$work/content" "$mount_point/late" 2>/dev/null || fail "round $i: the former holder can write"
    umount -l "$mount_point"
    wait_until has_ended "$server"
    server=$("$bin/tiffin" status "$successor" | sed -n 's/^process: //p')
    cp "$work/content" "$successor/unsynced"
    while_cut unmount umount "$successor"
    wait_until has_ended "$server"
    server=""
    mount_device
    cmp "$work/content" "$mount_point/unsynced" || fail "after the unmount of round $i"
    unmount_device
done
say "$cuts_within of $cuts cuts came before the command had ended"
[[ $cuts_within -ge $((cuts / 3)) ]] || fail "most cuts came too late: the test tests little"
check_device "after $cuts cuts"
stop_server
