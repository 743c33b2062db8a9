#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Volumes that are filled to the last block, with large files, tiny files and extended attributes, and
# emptied again, several times: "no space" arrives, what was there before stays, deleting works, and the
# space comes back.
#
# usage: full_volume.sh file:PATH             (what PATH holds is lost)
#        full_volume.sh LARGE TINY XATTR      (remote volumes for each of these, filled once)
set -euo pipefail
[[ $# -eq 1 || $# -eq 3 ]] || { echo "usage: $(basename "$0") file:PATH | LARGE TINY XATTR" >&2; exit 2; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3 sha256sum

# Writes until nothing fits any more. An error other than ENOSPC is a failure; with the write-back cache
# ENOSPC may come from fsync and close, too.
fill() {
    python3 - "$1" "$mount_point/fill" <<'PYTHON'
import errno
import os
import sys

kind, folder = sys.argv[1:]
data = os.urandom(1 << 20)


def write_file(name, size):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        while size > 0:
            size -= os.write(file, data[:min(size, len(data))])
        if kind == "large":
            os.fsync(file)
    finally:
        os.close(file)


def add(number):
    name = f"{folder}/{number // 1000}/{kind}-{number}"
    if number % 1000 == 0:
        os.mkdir(os.path.dirname(name))
    if kind == "large":
        write_file(name, 3 << 20)
    elif kind == "tiny":
        write_file(name, number % 100)
    else:
        write_file(name, 0)
        for i in range(12):
            os.setxattr(name, f"user.attribute-{i}", data[:4000])


number = 0
os.mkdir(folder)
try:
    while True:
        add(number)
        number += 1
except OSError as error:
    if error.errno != errno.ENOSPC:
        raise
# Something did fit, and small things may still fit where a large one did not.
if number < 5:
    sys.exit(f"only {number} items fitted")
PYTHON
}

# "USED_BLOCKS USED_INODES"
usage() { df --output=used,iused -B4096 "$mount_point" | tail -n 1; }

# What is free besides was used for the tree itself; it may have grown by a few blocks.
is_as_before() {
    local blocks inodes
    read -r blocks inodes <<<"$(usage)"
    ((inodes == inodes_before && blocks <= blocks_before + 32))
}

check_inodes() {
    local total free
    read -r total free <<<"$(df --output=itotal,iavail "$mount_point" | tail -n 1)"
    ((total > free && free > 0)) || fail "statfs: $total inodes, $free of them free"
}

declare -A sizes=([large]=64M [tiny]=8M [xattr]=16M)
declare -A addresses=([large]=$1 [tiny]=${2:-$1} [xattr]=${3:-$1})
rounds=2
[[ $# -eq 1 ]] || rounds=1
for kind in large tiny xattr; do
    say "$kind"
    use_device "${addresses[$kind]}" "${sizes[$kind]}"
    mount_device commit=1
    mkdir "$mount_point/kept"
    for number in {1..20}; do
        head -c $((number * 7777)) /dev/urandom >"$mount_point/kept/$number"
    done
    (cd "$mount_point/kept" && sha256sum -- *) >"$work/sums"
    sync "$mount_point"/kept/*
    check_inodes
    read -r blocks_before inodes_before <<<"$(usage)"
    for ((round = 1; round <= rounds; round++)); do
        fill $kind || fail "$kind, round $round: something else than ENOSPC"
        is_as_before && fail "$kind, round $round: nothing was stored"
        (cd "$mount_point/kept" && sha256sum --check --quiet "$work/sums") ||
            fail "$kind, round $round: content is lost while the volume is full"
        # Several at a time live on one reserve.
        find "$mount_point/fill" -type f -print0 | xargs -0 -n 50 -P 6 rm ||
            fail "$kind, round $round: deleting on the full volume, six at a time"
        rm -rf "$mount_point/fill" || fail "$kind, round $round: deleting on the full volume"
        wait_until is_as_before
    done
    unmount_device
    check_device "$kind"
    mount_device
    (cd "$mount_point/kept" && sha256sum --check --quiet "$work/sums") ||
        fail "$kind: content is lost"
    [[ $(ls "$mount_point") == kept ]] || fail "$kind: something is left"
    unmount_device
done
echo "passed"
