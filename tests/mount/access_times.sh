#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Access times of what is read from the device: after a mount nothing is in the kernel's cache, so the
# first read of a file reaches the file system.
#
# usage: access_times.sh DEVICE        (file:PATH; a new image is made there)
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $(basename "$0") DEVICE" >&2; exit 2; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"

use_device "$1" 64M
mount_device noatime
head -c 100000 /dev/urandom >"$mount_point/large"
echo small >"$mount_point/small"
touch -d '2001-01-01 00:00:00 UTC' "$mount_point"/*
unmount_device

# access_year FILE
access_year() { stat -c %x "$mount_point/$1" | cut -d - -f 1; }

# expect_after_reading OPTIONS YES|NO: whether reading moves the access time.
expect_after_reading() {
    local options=$1 moves=$2 file
    say "$options: $moves"
    mount_device "$options"
    for file in large small; do
        touch -a -d '2001-01-01 00:00:00 UTC' "$mount_point/$file" 2>/dev/null || true
        [[ $(access_year "$file") == 2001 ]] || fail "$options, $file: not as it was set"
        cat "$mount_point/$file" >"$work/read"
        if [[ $moves == yes ]]; then
            [[ $(access_year "$file") != 2001 ]] || fail "$options, $file: the access time did not move"
        else
            [[ $(access_year "$file") == 2001 ]] || fail "$options, $file: the access time moved"
        fi
    done
    unmount_device
}

read_it() { cat "$mount_point/large"; }
read_quietly() { dd iflag=noatime status=none if="$mount_point/large"; }

# expect_after_reading_again OPTIONS YES|NO [READER]: the same for what the kernel has cached.
expect_after_reading_again() {
    local options=$1 moves=$2 reader=${3:-read_it} file=$mount_point/large
    say "$options, $reader, cached: $moves"
    mount_device "$options"
    cat "$file" >"$work/read"
    touch -a -d '2001-01-01 00:00:00 UTC' "$file"
    [[ $(access_year large) == 2001 ]] || fail "$options, cached: not as it was set"
    "$reader" >"$work/read"
    if [[ $moves == yes ]]; then
        [[ $(access_year large) != 2001 ]] || fail "$options, cached: the access time did not move"
    else
        [[ $(access_year large) == 2001 ]] || fail "$options, cached: the access time moved"
    fi
    unmount_device
}

# expect_unmoved HOW COMMAND...: what leaves the access time alone although the kernel reads the file.
expect_unmoved() {
    local how=$1 file=$mount_point/large
    shift
    say "strictatime, $how: no"
    mount_device strictatime
    touch -a -d '2001-01-01 00:00:00 UTC' "$file"
    "$@" >"$work/read"
    [[ $(access_year large) == 2001 ]] || fail "$how: the access time moved"
    unmount_device
}

write_a_little() { printf x | dd of="$mount_point/large" bs=1 seek=5000 conv=notrunc status=none; }

expect_after_reading ro no
expect_after_reading noatime no
expect_after_reading relatime yes
expect_after_reading strictatime yes
expect_after_reading strict_flags,strictatime yes
expect_after_reading_again strictatime no
expect_after_reading_again strict_flags,strictatime yes
expect_after_reading_again strict_flags,relatime yes
expect_after_reading_again strict_flags,noatime no
expect_after_reading_again strict_flags,strictatime no read_quietly
expect_unmoved "opened with O_NOATIME" read_quietly
expect_unmoved "a write of a part of a page" write_a_little
check_device "at the end"
echo "passed"
