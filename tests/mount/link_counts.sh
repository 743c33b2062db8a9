#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Link counts of files that lose names while they are listed, by link_counts.py; then, that the kernel asks for the
# attributes of such a file, and keeps those of others.
#
# usage: link_counts.sh [ROUNDS]
set -euo pipefail
script=$(realpath "$(dirname "$0")")/link_counts.py
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3
rounds=${1:-4000}
[[ $(id -u) -eq 0 ]] || fail "drops the kernel's caches: run it as root"
use_device mem:256M 0

# The messages by which the kernel asks for attributes, so far.
questions() {
    "$bin/tiffin" stats --json "$mount_point" |
        python3 -c 'import json, sys; all = json.load(sys.stdin); print(all["LOOKUP"]["count"] + all["GETATTR"]["count"])'
}

say "names that come and go"
mount_device ""
python3 "$script" "$mount_point/links" "$rounds" || fail "see above"

say "what the kernel keeps"
for name in kept lost; do
    echo content >"$mount_point/$name"
    ln "$mount_point/$name" "$mount_point/$name.other"
done
rm "$mount_point/lost.other"
declare -A asked
for name in kept lost; do
    stat "$mount_point/$name" >/dev/null
    before=$(questions)
    for _ in $(seq 10); do
        [[ $(stat -c %h "$mount_point/$name") -eq $([[ $name == kept ]] && echo 2 || echo 1) ]] ||
            fail "wrong number of links of $name"
    done
    asked[$name]=$(($(questions) - before))
done
[[ ${asked[lost]} -ge 10 ]] || fail "the kernel keeps attributes of a file that has just lost a name"
[[ ${asked[kept]} -le 2 ]] || fail "the kernel asks ${asked[kept]} times for what it could keep"
unmount_device
echo "passed"
