#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Thousands of single system calls, on a FUSE mount of a tiffinfs, on ext4 and on tmpfs of the same machine:
# what they answer and what they change must be the same as on one of the two. tests/conformance has the
# calls, and in known_differences.txt what may differ and why.
#
# usage: conformance.sh CONFORMANCE [GROUP]...
#
# With TIFFIN_CONFORMANCE_OUTPUT=FOLDER the three outputs are left there. With groups, which are named in
# tests/conformance/groups.h, only those are tried, and the list of known differences is not applied.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") CONFORMANCE [GROUP]..." >&2; exit 2; }
conformance=$(realpath "$1")
shift
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
folder=$repository/tests/conformance
[[ $(id -u) -eq 0 ]] || fail "callers of all kinds take part: run it as root"
need_programs mkfs.ext4 python3

memory=$work/memory
clean_up_all() {
    local status=$?
    set +e
    ! mountpoint -q "$work/ext4" || umount -l "$work/ext4"
    ! mountpoint -q "$memory" || umount -l "$memory"
    clean_up "$status"
}
trap clean_up_all EXIT

# All in memory: a tmpfs for its own sake, on which the image of the ext4 lies, too.
mkdir "$memory" "$work/ext4"
mount -t tmpfs -o size=1G,nr_inodes=1M,mode=755 tmpfs "$memory" || fail "cannot mount a tmpfs"
mkdir "$memory/tmpfs"
truncate -s 768M "$memory/image"
mkfs.ext4 -q -F -N 200000 -E lazy_itable_init=0,lazy_journal_init=0 "$memory/image" ||
    fail "mkfs.ext4 cannot make the image to compare with"
mount -t ext4 -o loop "$memory/image" "$work/ext4" ||
    fail "an ext4 image cannot be mounted by a loop device here, so there is nothing to compare with"
use_device mem:1G 0
mount_device dev,suid
libfuse=$("$bin/tiffin" status "$mount_point" | sed -n 's/^libfuse: //p')
[[ $(printf '%s\n' 3.18 "$libfuse" | sort -V | head -n 1) == 3.18 ]] ||
    fail "libfuse is ${libfuse:-of an unknown version}: before 3.18 it does not pass on all that is compared"

# try_all NAME DIRECTORY [GROUP]...: a line for each trial in NAME.txt.
try_all() {
    local name=$1 directory=$2/trials
    shift 2
    mkdir "$directory"
    "$conformance" "$directory" "$@" >"$work/$name.txt" 2>"$work/$name.errors"
}

say "trials: ${*:-all}"
runs=()
try_all tiffin "$mount_point" "$@" & runs+=($!)
try_all ext4 "$work/ext4" "$@" & runs+=($!)
try_all tmpfs "$memory/tmpfs" "$@" & runs+=($!)
made=yes
for run in "${runs[@]}"; do
    wait "$run" || made=no
done
[[ $made == yes ]] || fail "trials could not be made: $(cat "$work"/*.errors)"
if [[ -n ${TIFFIN_CONFORMANCE_OUTPUT:-} ]]; then
    cp "$work"/{tiffin,ext4,tmpfs}.txt "$TIFFIN_CONFORMANCE_OUTPUT/"
fi

say "comparison"
known=()
[[ $# -gt 0 ]] || known=(--known "$folder/known_differences.txt")
"$folder/compare.py" "${known[@]}" "$work"/{tiffin,ext4,tmpfs}.txt || fail "see above"
unmount_device
echo "passed"
