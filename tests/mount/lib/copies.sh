# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Fills a mounted volume with copies of a file of 1 MB. Sourced after device.sh.
# shellcheck shell=bash

# Set by device.sh.
: "${work:?}" "${mount_point:?}"

head -c 1000000 /dev/urandom >"$work/content"
copies=0
# Copies what fits.
fill() {
    while cp "$work/content" "$mount_point/copy-$copies" 2>/dev/null && sync "$mount_point/copy-$copies" 2>/dev/null; do
        copies=$((copies + 1))
    done
    rm -f "$mount_point/copy-$copies"
}
compare() {
    for ((i = 0; i < copies; i++)); do
        cmp "$work/content" "$mount_point/copy-$i" || fail "copy-$i is damaged"
    done
}
