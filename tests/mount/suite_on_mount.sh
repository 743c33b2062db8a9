#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The suite with real system calls on a FUSE mount of a tiffinfs in memory.
#
# usage: suite_on_mount.sh SUITE_RUN_MOUNT [ARGUMENT...]    (further arguments go to it)
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") SUITE_RUN_MOUNT [ARGUMENT...]" >&2; exit 2; }
suite=$(realpath "$1")
shift
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
[[ $(id -u) -eq 0 ]] || fail "the suite makes device nodes and acts as other users: run it as root"

# What older versions of libfuse cannot pass on.
missing_features() {
    local version
    version=$("$bin/tiffin" status "$mount_point" | sed -n 's/^libfuse: //p')
    [[ -n $version ]] || fail "tiffin status does not tell the version of libfuse"
    older() { [[ $version != "$1" && $(printf '%s\n' "$version" "$1" | sort -V | head -n 1) == "$version" ]]; }
    ! older 3.17.0 || echo "--without tmpfile"
    ! older 3.18.0 || echo "--without birth_time"
}

use_device mem:512M 0
say "default options"
mount_device dev,suid
mapfile -t without < <(missing_features | tr ' ' '\n')
"$suite" "$mount_point" "${without[@]}" --without flags_at_open "$@" >"$work/default" ||
    fail "the suite: $(grep -v -e '^passed' -e '^not run' "$work/default")"
grep '^not run' "$work/default"
tail -n 1 "$work/default"
unmount_device

say "strict_flags"
mount_device dev,suid,strict_flags
"$suite" "$mount_point" "${without[@]}" -k flags. >"$work/strict" ||
    fail "the suite: $(grep -v -e '^passed' -e '^not run' "$work/strict")"
tail -n 1 "$work/strict"
unmount_device

# Without those of positions, which that cache does not keep.
say "cache_directories"
mount_device dev,suid,cache_directories
"$suite" "$mount_point" "${without[@]}" -k readdir. >"$work/cached" ||
    fail "the suite: $(grep -v -e '^passed' -e '^not run' "$work/cached")"
tail -n 1 "$work/cached"
unmount_device

if [[ ${TIFFIN_TEST_LEAST:-} != 1 ]]; then  # which scripts/check-preset --short sets
    say "write_through"
    mount_device dev,suid,write_through
    "$suite" "$mount_point" "${without[@]}" --without flags_at_open --without chown_of_nothing "$@" >"$work/through" ||
        fail "the suite: $(grep -v -e '^passed' -e '^not run' "$work/through")"
    tail -n 1 "$work/through"
    unmount_device
fi

# Each ends its mount.
for mode in 0 1 2; do
    say "shutdown, mode $mode"
    mount_device dev,suid
    "$suite" "$mount_point" "${without[@]}" --with shutdown -k "shutdown.mode_$mode" \
        >"$work/shutdown" || fail "the suite: $(<"$work/shutdown")"
    tail -n 1 "$work/shutdown"
    ended=$server
    server=""
    stop_filler
    take_away
    wait_until has_ended "$ended"
    check_sanitizer
done
echo "passed"
