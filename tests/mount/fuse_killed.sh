#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# SIGKILL ends the process of a mount wherever it is: nothing in it waits for its own answers, which nobody could end.
# What waits for them outside gets an error.
# shellcheck disable=SC2119  # the options of mount_it are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

processes() { pgrep --full "$mount_program .*$mount_point" | grep -v "^$$\$"; }
nothing_runs() { ! processes >/dev/null; }
# Of a test that fails: what cannot be killed ends with the connection.
trap 'umount -f "$mount_point" 2>/dev/null || true; clean_up' EXIT
export TIFFIN_TEST_STUCK=$work/stuck
waits() { [[ -e $work/stuck ]]; }
kill_all() {
    local process killed
    mapfile -t killed < <(processes)
    for process in "${killed[@]}"; do
        kill -KILL "$process" 2>/dev/null || true
    done
    # With all threads: of a process that hangs the first one is gone.
    for process in "${killed[@]}"; do
        wait_until has_ended "$process"
    done
}

# ---- While the mount is asked for the first time -------------------------------------------------
for place in background foreground; do
    flag=()
    [[ $place == background ]] || flag=(-f)
    "$mount_program" "${flag[@]}" --fs stuck none "$mount_point" >"$work/said" 2>&1 &
    starter=$!
    wait_until waits
    kill_all
    wait "$starter" 2>/dev/null && fail "$place: mounting succeeded"
    wait_until nothing_runs
    take_away -l
    rm "$work/stuck"
done

# The server alone: the starter says what has happened.
"$mount_program" --fs stuck none "$mount_point" >"$work/said" 2>&1 &
starter=$!
wait_until waits
process=$(pgrep --parent "$starter")
kill -KILL "$process"
wait_until has_ended "$process"
wait "$starter" && fail "mounting succeeded though the server was killed"
grep -q "was killed by signal 9" "$work/said" || fail "the starter said: $(<"$work/said")"
wait_until nothing_runs
take_away -l
rm "$work/stuck"

# ---- While data is written back ------------------------------------------------------------------
mount_it --fs unwritable
process=$(server)
# Not this shell: closing writes back, too, also a copy of the descriptor.
(
    exec >"$mount_point/file"
    echo data
    exec sleep 600
) &
user=$!
file_is_written() { [[ $(readlink "/proc/$user/exe") == */sleep ]]; }
wait_until file_is_written
# In use, so it is synchronised first.
kill -TERM "$process"
wait_until waits
kill_all
wait_until nothing_runs
kill -KILL "$user"
wait "$user" 2>/dev/null || true
! is_mounted || take_away -l
echo "passed"
