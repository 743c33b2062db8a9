#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Thousands of single system calls, on a FUSE mount of a tiffinfs, on ext4 and on tmpfs of the same machine:
# what they answer and what they change must be the same as on one of the two. tests/conformance has the
# calls, and in known_differences.txt what may differ and why. Where TIFFIN_TEST_WHOLE is set, a second mount has the option
# write_through; there it may also be as on the first.
#
# What ext4 and tmpfs have answered is kept below $XDG_CACHE_HOME (or ~/.cache) in tiffin/conformance, and goes for the same kernel
# and the same trials: more than half of the time goes into that. Not where TIFFIN_TEST_WHOLE is set, nor when something differs.
#
# usage: conformance.sh CONFORMANCE [GROUP]...
#
# With TIFFIN_CONFORMANCE_OUTPUT=FOLDER the outputs are left there. With groups, which are named in
# tests/conformance/main.cc, only those are tried, and the lists of known differences are not applied.
set -euo pipefail
arguments=("$@")
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") CONFORMANCE [GROUP]..." >&2; exit 2; }
conformance=$(realpath "$1")
shift
all=$([[ $# -gt 0 ]] && echo no || echo yes)
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
folder=$repository/tests/conformance
[[ $(id -u) -eq 0 ]] || fail "callers of all kinds take part: run it as root"
need_programs mkfs.ext4 python3 setsid

# All in memory: a tmpfs for its own sake, and one on which the image of the ext4 lies.
mount_others() {
    local memory=$work/memory place
    mkdir "$memory" "$work/ext4" "$work/tmpfs"
    for place in "$memory" "$work/tmpfs"; do
        mount -t tmpfs -o size=1G,nr_inodes=1M,mode=755 tmpfs "$place" || fail "cannot mount a tmpfs"
    done
    truncate -s 768M "$memory/image"
    mkfs.ext4 -q -F -N 400000 -E lazy_itable_init=0,lazy_journal_init=0 "$memory/image" ||
        fail "mkfs.ext4 cannot make the image to compare with"
    mount -t ext4 -o loop "$memory/image" "$work/ext4" ||
        fail "an ext4 image cannot be mounted by a loop device here, so there is nothing to compare with"
}
kept=""
if [[ $all == yes && -z ${TIFFIN_TEST_WHOLE:-}${TIFFIN_CONFORMANCE_AGAIN:-} ]]; then
    kept=$({ uname -rv && mkfs.ext4 -V 2>&1 && cat "$0" "$folder"/*.cc "$folder"/*.h; } | sha256sum)
    kept=${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/conformance/${kept%% *}
fi
use_device mem:1G 0
mount_device dev,suid
second=""
if [[ -n ${TIFFIN_TEST_WHOLE:-} ]]; then
    second=$work/write_through
    mkdir "$second"
    "$bin/mount.tiffin" "$device" "$second" -o dev,suid,write_through || fail "mount.tiffin -o write_through"
    second_server=$("$bin/tiffin" status "$second" | sed -n 's/^process: //p')
fi
libfuse=$("$bin/tiffin" status "$mount_point" | sed -n 's/^libfuse: //p')
[[ $(printf '%s\n' 3.18 "$libfuse" | sort -V | head -n 1) == 3.18 ]] ||
    fail "libfuse is ${libfuse:-of an unknown version}: before 3.18 it does not pass on all that is compared"

# try_all NAME DIRECTORY READ_ONLY [GROUP]...: a line for each trial in NAME.txt. The command READ_ONLY makes the file system
# read-only. What runs there holds mounts of its own, so it has to end whenever this script does.
try_all() {
    local name=$1 directory=$2/trials read_only=$3
    shift 3
    mkdir "$directory"
    exec setsid "$conformance" --read-only "$read_only" "$directory" "$@" \
        >"$work/$name.txt" 2>"$work/$name.errors"
}
# remount_tiffin DIRECTORY OPTIONS: the command that makes it read-only.
remount_tiffin() { printf '%q ' "$bin/mount.tiffin" "$device" "$1" -o "$2,remount,ro"; }

say "trials: ${*:-all}"
try_all tiffin "$mount_point" "$(remount_tiffin "$mount_point" dev,suid)" "$@" & load_group+=($!)
if [[ -n $second ]]; then
    try_all write_through "$second" "$(remount_tiffin "$second" dev,suid,write_through)" "$@" & load_group+=($!)
fi
if [[ -n $kept && -e $kept ]]; then
    say "ext4 and tmpfs: as in $kept"
    cp "$kept"/{ext4,tmpfs}.txt "$work"
else
    mount_others
    for other in ext4 tmpfs; do
        try_all $other "$work/$other" "mount -o remount,ro $work/$other" "$@" & load_group+=($!)
    done
fi
made=yes
for run in "${load_group[@]}"; do
    wait "$run" || made=no
done
[[ $made == yes ]] || fail "trials could not be made: $(cat "$work"/*.errors)"
load_group=()
if [[ -n ${TIFFIN_CONFORMANCE_OUTPUT:-} ]]; then
    cp "$work"/*.txt "$TIFFIN_CONFORMANCE_OUTPUT/"
fi

# Trials that two changes fell into one tick of the clock for, or whose pages the kernel dropped, come out otherwise now and
# then: everything a second time, and what differs then does.
try_again() {
    local status=0
    [[ -z ${TIFFIN_CONFORMANCE_AGAIN:-} ]] || fail "see above"
    say "again"
    TIFFIN_CONFORMANCE_AGAIN=yes "$0" "${arguments[@]}" || status=$?
    exit "$status"
}

# compare LIST NAME OTHER...: each line of NAME is as one of the others, or as the list says.
compare() {
    local list=$folder/$1 known=() files=()
    shift
    [[ $all == no ]] || known=(--known "$list")
    files=("${@/#/$work/}")
    "$folder/compare.py" "${known[@]}" "${files[@]/%/.txt}" || try_again
}

say "comparison"
compare known_differences.txt tiffin ext4 tmpfs
if [[ -n $kept && ! -e $kept ]]; then
    mkdir -p "$kept.$$"
    cp "$work"/{ext4,tmpfs}.txt "$kept.$$"
    mv -T "$kept.$$" "$kept" || rm -r "${kept:?}.$$"
fi
if [[ -n $second ]]; then
    say "comparison with write_through"
    compare known_differences_write_through.txt write_through ext4 tmpfs tiffin
    take_away_from "$second" || fail "cannot unmount the second mount"
    wait_until has_ended "$second_server"
fi
unmount_device
echo "passed"
