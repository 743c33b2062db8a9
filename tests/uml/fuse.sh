#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The tests of mounts (tests/mount) with the FUSE of this kernel, which may be older than that of the machine that runs the other
# tests: what a kernel asks, and when it takes a write for done, has changed several times. Run by tests/uml/run.
# usage: fuse.sh [NAME...]      of tests/mount/NAME.sh; without: those that go by what the kernel does, and not by how fast it is
# shellcheck disable=SC2154  # tests/uml/run gives them
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
[[ $# -gt 0 ]] || set -- fuse_killed fuse_life_cycle fuse_privileges fuse_programs fuse_seeking fuse_starting fuse_waiting \
    access_times ending full_volume queued_writes suite_on_mount unusual_use
insmod "$kernel_modules/fs/fuse/fuse.ko"
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
export TIFFIN_BIN=$bin TMPDIR=/tmp
for name in "$@"; do
    arguments=()
    case $name in
        fuse_*) arguments=("$bin/../tests/mount/mount_memory" "$bin/tiffin") ;;
        queued_writes) arguments=("$bin/../tests/mount/libslow_device.so") ;;
        suite_on_mount) arguments=("$bin/../tests/mount/suite_run_mount") ;;
        access_times | full_volume | unusual_use) arguments=("file:/tmp/$name.img") ;;
    esac
    say "$name"
    started=$SECONDS
    status=0
    bash "$repository/tests/mount/$name.sh" "${arguments[@]}" >/tmp/output 2>&1 || status=$?
    if [[ $status -ne 0 && $status -ne 77 ]]; then
        tail -n 40 /tmp/output
        fail "$name ended with $status"
    fi
    say "$name: $((SECONDS - started)) s, status $status"
    rm -f "/tmp/$name.img"
done
