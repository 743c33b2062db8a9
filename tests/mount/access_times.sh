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

expect_after_reading ro no
expect_after_reading noatime no
expect_after_reading relatime yes
expect_after_reading strictatime yes
check_device "at the end"
echo "passed"
