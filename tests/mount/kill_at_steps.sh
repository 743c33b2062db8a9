#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# SIGKILL and SIGTERM at steps of the whole life of a mount, from the first call of the process to its last one, for the
# serving process and for the mount program that waits for it. Whatever the moment: no process stays, no mount that
# cannot be taken away, the image can be mounted again without doing anything first, and what was synchronised is there.
#
# usage: kill_at_steps.sh IMAGE_ADDRESS SIGNAL_AT_STEP_LIBRARY [SEED]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: umount takes root" && exit 77; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs timeout
library=$2
seed=${3:-1}
RANDOM=$seed
say "seed $seed"
trials=30         # of the server with each signal
starter_trials=8  # of the starter, which takes few steps
use_device "$1" 64M

processes() { pgrep --full "mount.tiffin .*$mount_point" || true; }
# With all their threads: of a process that hangs the first one is gone.
let_all_end() {
    local process
    for process in "$@" $(processes); do
        wait_until has_ended "$process"
    done
}
# What hangs is a failure, and says so soon.
answers() { timeout 20 stat --file-system "$mount_point" >/dev/null 2>&1; }

# live SIGNAL OF STEP HOW: a mount that gets the signal at this step, is written to and ends by HOW, if it comes that far.
names=()
live() {
    local signal=$1 of=$2 at=$3 how=$4 known
    local name=file-${#names[@]}-$at
    STEP_OF=$of STEP_SIGNAL=$signal STEP_AT=$at STEP_COUNT=$work/steps LD_PRELOAD=$library \
        "$bin/mount.tiffin" "$device" "$mount_point" -o "log=$log" >"$work/said" 2>&1 || true
    known=$(processes)
    # One that was given up ends meanwhile: then the file lies in the directory below.
    if is_mounted && answers && echo "$name" 2>/dev/null >"$mount_point/$name" && sync "$mount_point/$name" 2>/dev/null &&
        [[ $(stat --format %d "$mount_point/$name" 2>/dev/null) != "$(stat --format %d "$work")" ]]; then
        names+=("$name")
    fi
    if [[ $how == umount ]]; then
        umount "$mount_point" 2>/dev/null || true
        # One that was in use for a moment, or mounted only now; or it ends just then.
        ! is_mounted || ! answers || umount "$mount_point" || ! is_mounted ||
            fail "step $at: the mount lives and cannot be unmounted"
    else
        # shellcheck disable=SC2086  # numbers
        kill -TERM $known 2>/dev/null || true
    fi
    # shellcheck disable=SC2086
    let_all_end $known
}

# check WHEN: everything is there; a dead mount is in nobody's way.
check() {
    mount_device ""
    local name
    for name in "${names[@]}"; do
        [[ $(cat "$mount_point/$name" 2>&1) == "$name" ]] || fail "$1: what was synchronised is lost: $name"
    done
    unmount_device
    ! is_mounted || fail "$1: a second mount is there"
}

live 0 server 0 umount
steps=$(<"$work/steps")
[[ $steps -ge 30 && ${#names[@]} -eq 1 ]] || fail "the library has counted $steps steps"
say "about $steps steps"
killed=0
for signal in 9 15; do
    for ((trial = 0; trial < trials; trial++)); do
        # Each part of the life gets its share.
        at=$((1 + (trial * steps + RANDOM % steps) / trials))
        how=$([[ $((trial % 2)) -eq 0 ]] && echo umount || echo TERM)
        rm -f "$work/steps"
        live "$signal" server "$at" "$how"
        [[ -e $work/steps ]] || killed=$((killed + 1))
        check "signal $signal at step $at of the server, end by $how"
    done
    for ((at = 1; at <= starter_trials; at++)); do
        live "$signal" starter "$((at + RANDOM % 4 * 8))" umount
        check "signal $signal at step $at of the starter"
    done
done
[[ $killed -ge $((trials / 2)) ]] || fail "only $killed servers were killed"
[[ ${#names[@]} -ge 5 ]] || fail "only ${#names[@]} mounts got as far as being written to"
say "$killed killed, ${#names[@]} written to"
check_device "at the end"
echo "passed"
