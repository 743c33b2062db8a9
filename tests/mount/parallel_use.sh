#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Several programs use one mount at once with all kinds of calls (parallel_use.py): each finds what it has stored, also
# after a remount, and the checker finds nothing. Runs with sanitizers, too.
#
# usage: parallel_use.sh DEVICE_ADDRESS [OPERATIONS [SEED]]        (file:PATH; what PATH holds is lost)
set -euo pipefail
[[ $# -ge 1 && $# -le 3 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS [OPERATIONS [SEED]]" >&2; exit 2; }
script=$(realpath "$(dirname "$0")")/parallel_use.py
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3
operations=${2:-3000}
seed=${3:-1}

use_device "$1" 1G
# A small cache has nodes read and written all the time; without polling threads sleep between requests.
for options in "" "cache=4M,commit=1,busy_poll_us=0" write_through; do
    say "options '$options', seed $seed"
    mount_device "$options"
    # What administrators do meanwhile.
    set -m
    while "$bin/tiffin" status "$mount_point" && "$bin/tiffin" stats "$mount_point"; do
        sleep 0.2
    done >"$work/watched" 2>&1 &
    load_group=("$!")
    set +m
    python3 "$script" "$mount_point" "$work/record" --seed "$seed" --operations "$operations" ||
        fail "see above"
    kill -0 "${load_group[0]}" || fail "status or stats failed: $(tail -n 3 "$work/watched")"
    end_group TERM
    unmount_device
    check_device "after seed $seed"

    mount_device
    python3 "$script" "$mount_point" "$work/record" --verify || fail "after the remount: see above"
    find "$mount_point" -mindepth 1 -delete
    unmount_device
    seed=$((seed + 1))
done
! grep -E ' (warning|error): ' "$log" || fail "the log has complaints"
echo "passed"
