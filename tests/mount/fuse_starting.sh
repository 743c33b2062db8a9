#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the process of a mount takes from the one that starts it, and what becomes of a mount whose starter
# does not wait for it any more.
# shellcheck disable=SC2119  # the options of mount_it are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

nothing_is_left() { ! is_mounted && ! pgrep --full "$mount_point" >/dev/null; }

# ---- Descriptors ---------------------------------------------------------------------------------
exec 9>"$work/lock"
flock 9
mount_it
exec 9>&-
flock --nonblock "$work/lock" true || fail "the server keeps its starter's lock"
unmount_it

for closed in "<&-" ">&-" "<&- >&-" "<&- >&- 2>&-"; do
    eval "\"$mount_program\" none \"$mount_point\" $closed &"
    starter=$!
    wait_until has_ended "$starter"
    wait "$starter" || fail "mounting with $closed ended with $?"
    process=$(server)
    for descriptor in 0 1 2; do
        [[ $(readlink "/proc/$process/fd/$descriptor") == /dev/null ]] ||
            fail "with $closed descriptor $descriptor of the server is not /dev/null"
    done
    echo content >"$mount_point/file"
    [[ $(<"$mount_point/file") == content ]] || fail "what was written is not there"
    unmount_it
done

# ---- A start that is broken off ------------------------------------------------------------------
# A log that nobody reads makes the start wait.
mkfifo "$work/log"
begin() {
    "$@" "$mount_program" none "$mount_point" -o log="$work/log" 2>"$work/said" &
    starter=$!
    wait_until has_child
    child=$(pgrep --parent "$starter")
}
has_child() { pgrep --parent "$starter" >/dev/null; }
# SIGTERM is 15, so bit 14.
signals_are_blocked() {
    local mask
    mask=$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$child/status")
    (((0x$mask >> 14) & 1))
}
go_on() { cat "$work/log" >"$work/log-content" & }

begin
disown "$starter"
kill -KILL "$starter"
wait_until has_ended "$starter"
go_on
wait_until has_ended "$child"
is_mounted && fail "it was mounted although the starter does not wait any more"
wait_until grep -q "does not wait any more" "$work/log-content"

begin
wait_until signals_are_blocked
kill -TERM "$child"
go_on
wait "$starter" && fail "mounting succeeded although it was told to end"
grep -q "signal" "$work/said" || fail "nothing about the signal was said: $(<"$work/said")"
wait_until nothing_is_left

# A signal from a terminal goes to all processes of a group.
begin setsid
wait_until signals_are_blocked
kill -TERM -- "-$starter"
wait "$starter" 2>/dev/null || true
go_on
wait_until has_ended "$child"
is_mounted && fail "it was mounted although its process group was told to end"
rm "$work/log"

# ---- A mount that does not answer ----------------------------------------------------------------
expect_failure "does not answer" "$mount_program" --fs mute none "$mount_point"
wait_until nothing_is_left
echo "passed"
