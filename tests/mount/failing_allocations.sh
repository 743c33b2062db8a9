#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A daemon of whose allocations many fail: what it refuses, it refuses with an error, what it has done stays, and it
# lives on. (In the core every single allocation fails once: tests/unit/tiffinfs/allocation_failure_test.cc.)
#
# usage: failing_allocations.sh DEVICE_ADDRESS FAILING_MALLOC       (file:PATH; what PATH holds is lost)
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $# -eq 2 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS FAILING_MALLOC" >&2; exit 2; }
script=$(realpath "$(dirname "$0")")/failing_allocations.py
library=$(realpath "$2")
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3

use_device "$1" 512M
export FAILING_REPORT=$work/report
for one_of in 100 10 3; do
    say "one of $one_of"
    rm -f "$FAILING_REPORT"
    FAILING_ONE_OF=$one_of LD_PRELOAD=$library mount_device
    kill -USR2 "$server"
    # What administrators do meanwhile.
    for ((i = 0; i < 20; i++)); do
        timeout 30 "$bin/tiffin" status "$mount_point" || true
        timeout 30 "$bin/tiffin" stats "$mount_point" || true
        sleep 0.1
    done >/dev/null 2>&1 &
    watcher=$!
    python3 "$script" "$mount_point" "$work/record" 500 || fail "see above"
    wait "$watcher"
    ! has_ended "$server" || fail "the daemon has ended"
    kill -USR2 "$server"
    wait_until test -s "$FAILING_REPORT"
    say "allocations that failed: $(<"$FAILING_REPORT")"
    [[ $(cut -d ' ' -f 1 "$FAILING_REPORT") -gt 10 ]] || fail "that is too few to say anything"
    python3 "$script" "$mount_point" "$work/record" --verify || fail "with memory again: see above"
    unmount_device
    check_device "with one of $one_of"

    mount_device
    python3 "$script" "$mount_point" "$work/record" --verify || fail "after the remount: see above"
    find "$mount_point" -mindepth 1 -delete
    unmount_device
done
echo "passed"
