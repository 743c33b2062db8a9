#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The metrics of a mount (-o metrics=): what is counted, a port that is taken, and the end.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3

address=127.0.0.1:$(python3 -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])')
get() { python3 -c 'import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=20).read())' "http://$address$1" 2>/dev/null; }
read_metrics() { get /metrics >"$work/metrics" || fail "nobody serves metrics"; }
# value NAME: of a line of what was read last, with its labels.
value() { awk -v name="$1" '$1 == name { print $2; found = 1 } END { exit !found }' "$work/metrics" || fail "there is no metric $1"; }
expect() {
    local found
    found=$(value "$1") || exit 1
    awk -v a="$found" -v b="$3" "BEGIN { exit !(a $2 b) }" || fail "$1 is $found, and not $2 $3"
}

say "a mistake in the option, and an address that this machine has not"
for wrong in 80 127.0.0.1:0 localhost:9848; do
    ! "$bin/mount.tiffin" mem:64M "$mount_point" -o "metrics=$wrong" 2>"$work/out" || fail "metrics=$wrong is accepted"
    grep -q 'wants an address and a port such as 127.0.0.1:9848' "$work/out" || fail "metrics=$wrong: $(<"$work/out")"
done
! "$bin/mount.tiffin" mem:64M "$mount_point" -o metrics=192.0.2.1:9848 2>"$work/out" || fail "it listens anywhere"
grep -q 'cannot be served at 192.0.2.1:9848' "$work/out" || fail "the error is: $(<"$work/out")"
! is_mounted || fail "a mount that failed is there"

say "what is counted"
use_device "mem:64M" ""
mount_device "metrics=$address"
read_metrics
expect 'tiffin_request_duration_seconds_count{operation="MKDIR"}' == 0
expect 'tiffin_volume_state{state="read-write"}' == 1
expect 'tiffin_volume_state{state="read-only"}' == 0
free=$(value tiffin_volume_free_bytes)
transactions=$(value tiffin_transactions_total)
mkdir "$mount_point"/{a,b,c}
! mkdir "$mount_point/a/none/d" 2>/dev/null || fail "mkdir works in a directory that does not exist"
! rmdir "$mount_point" 2>/dev/null || fail "the root was removed"
head -c 4194304 /dev/zero >"$mount_point/zeros"
sync -f "$mount_point/zeros"
! rmdir "$mount_point/zeros" 2>/dev/null || fail "a file is a directory"
read_metrics
expect 'tiffin_request_duration_seconds_count{operation="MKDIR"}' == 3
expect 'tiffin_request_duration_seconds_bucket{operation="MKDIR",le="+Inf"}' == 3
expect 'tiffin_request_duration_seconds_sum{operation="MKDIR"}' '>' 0
expect 'tiffin_request_bytes_total{operation="WRITE"}' == 4194304
expect tiffin_volume_free_bytes '<=' $((free - 4194304))
expect tiffin_volume_size_bytes '>' 50000000
expect tiffin_transactions_total '>=' $((transactions + 4))
expect tiffin_inodes '>=' 5
expect tiffin_start_time_seconds '<=' "$(date +%s).999"
expect 'tiffin_log_messages_total{level="error"}' == 0
# The same as 'tiffin stats' says.
for operation in MKDIR WRITE LOOKUP CREATE; do
    stats=$("$bin/tiffin" stats --json "$mount_point" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]]["count"])' $operation)
    expect "tiffin_request_duration_seconds_count{operation=\"$operation\"}" '<=' "$stats"
done
# What the file system says of itself in words arrives as numbers.
for name in inodes_waiting_for_deletion inodes_cached volume_damaged_blocks volume_generation cache_limit_bytes \
    cache_resident_bytes cache_dirty_bytes cache_hits_total cache_misses_total cache_evictions_total \
    journal_capacity_bytes journal_pending_bytes journal_frames_total journal_written_bytes_total \
    journal_flushes_total checkpoints_total requests_under_way; do
    value tiffin_$name >/dev/null
done
value "tiffin_mount_info{device=\"mem:64M\",mount_point=\"$mount_point\",file_system=\"tiffin\",version=\"$("$bin/tiffin" --version | awk '{ print $NF }')\"}" >/dev/null
! get / >/dev/null || fail "there is a page where none should be"

say "a port that is taken"
mkdir "$work/second"
! "$bin/mount.tiffin" mem:64M "$work/second" -o "metrics=$address" 2>"$work/out" || fail "two mounts have one port"
grep -q "metrics cannot be served at $address: .*Address already in use" "$work/out" || fail "the error is: $(<"$work/out")"
! grep -qF " $work/second fuse" /proc/self/mounts || fail "a mount that failed is there"
read_metrics

say "read-only, and the end"
if [[ $(id -u) -eq 0 ]]; then
    mount -t fuse.tiffin -o remount,ro "$mount_point" 2>/dev/null || "$bin/mount.tiffin" mem:64M "$mount_point" -o remount,ro
    read_metrics
    expect 'tiffin_volume_state{state="read-only"}' == 1
fi
# The port is free again at once, or as good: no mount fails because the one before is ending.
take_away
"$bin/mount.tiffin" mem:64M "$mount_point" -o "metrics=$address" || fail "it cannot be mounted again at once"
take_away
wait_until has_ended "$server"
server=""
gone() { ! get /metrics >/dev/null; }
wait_until gone
! get /metrics >/dev/null || fail "metrics are served after the end"
echo "the metrics of a mount are right"
