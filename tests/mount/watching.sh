#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# tiffin stats --interval and tiffin top: what they count, and the terminal afterwards.
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3

terminal() { timeout 100 python3 "$(dirname "$0")/lib/terminal.py" "$@" >"$work/frame" 2>&1; }
use_device mem:64M ""
mount_device

say "each request is in one interval"
"$bin/tiffin" stats --interval 0.3 --json "$mount_point" >"$work/intervals" &
watcher=$!
wait_until test -s "$work/intervals"
mkdir "$mount_point"/d{1..50}
counted() {
    python3 -c 'import json, sys
lines = [json.loads(line) for line in open(sys.argv[1]) if line.endswith("\n")]
assert all(line["seconds"] > 0 for line in lines)
busy = [line["operations"]["MKDIR"] for line in lines if line["operations"]["MKDIR"]["count"]]
assert all(each["per_s"] > 0 and 0 < each["p50_ns"] <= each["p99_ns"] for each in busy)
print(sum(each["count"] for each in busy))' "$work/intervals"
}
all_are_counted() { [[ $(counted) -eq 50 ]]; }
wait_until all_are_counted
kill "$watcher"
wait "$watcher" 2>/dev/null || true
"$bin/tiffin" stats --interval 0.1 --count 3 "$mount_point" >"$work/table"
[[ $(grep -c '^request' "$work/table") -eq 3 ]] || fail "there are not three intervals: $(<"$work/table")"
grep -q '^IOCTL ' "$work/table" || fail "its own requests are missing: $(<"$work/table")"

say "mistakes"
for wrong in '--interval 0' '--interval x' '--count 3' '--interval 1 --count 0'; do
    # shellcheck disable=SC2086
    ! "$bin/tiffin" stats $wrong "$mount_point" >"$work/out" 2>&1 || fail "tiffin stats $wrong works"
done
! "$bin/tiffin" top "$mount_point" >"$work/out" 2>&1 || fail "tiffin top works without a terminal"
grep -q 'not a terminal: use tiffin stats --interval' "$work/out" || fail "it says $(<"$work/out")"
! terminal 24 80 0 self "$bin/tiffin" top "$work" || fail "tiffin top works on another file system"
grep -q 'is not on a Tiffin mount' "$work/frame" || fail "it says $(<"$work/frame")"

say "the view, on terminals of several sizes, ended in several ways"
for end in ctrl-c q term both; do
    terminal 24 80 4 $end "$bin/tiffin" top --interval 0.2 "$mount_point" || fail "tiffin top, ended by $end: $(<"$work/frame")"
    grep -q '^tiffin top  .*mem:64M  read-write, up ' "$work/frame" || fail "the head is missing: $(<"$work/frame")"
    grep -q 'requests/s .* under way' "$work/frame" || fail "the sum is missing: $(<"$work/frame")"
    grep -q '^IOCTL .* us ' "$work/frame" || fail "the operations are missing: $(<"$work/frame")"
done
for size in '1 1' '2 10' '5 40' '200 300'; do
    # shellcheck disable=SC2086
    terminal $size 3 q "$bin/tiffin" top --interval 0.1 "$mount_point" || fail "a terminal of $size: $(<"$work/frame")"
done

say "a mount that does not answer, and one that ends"
kill -STOP "$server"
status=0
terminal 24 80 1 ctrl-c "$bin/tiffin" top "$mount_point" || status=$?
kill -CONT "$server"
[[ $status -eq 0 ]] || fail "tiffin top on a mount that does not answer: $(<"$work/frame")"
# Each question holds the mount open for a moment, in which it cannot be unmounted.
(sleep 2; wait_until take_away 2>>"$work/busy") &
waker=$!
! terminal 24 80 0 self "$bin/tiffin" top --interval 0.1 "$mount_point" || fail "tiffin top goes on without a mount"
wait "$waker" || fail "tiffin top keeps the mount busy"
wait_until has_ended "$server"
server=""
grep -q 'is not on a Tiffin mount' "$work/frame" || fail "it says $(<"$work/frame")"
echo "what is watched is right"
