#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Scrubbing a mount whose image has lost bits meanwhile, in the data of a file and in the tree; what
# tiffin stats counts; and that bars are drawn on terminals only.
#
# usage: scrub_damage.sh DEVICE_ADDRESS        (file:PATH; what PATH holds is lost)
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS" >&2; exit 2; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3 script

use_device "$1" 128M
image=${1#file:}
mount_device commit=1
mkdir -p "$mount_point/some/directory"
victim=$mount_point/some/directory/victim
head -c 3000000 /dev/urandom >"$victim"
head -c 8000000 /dev/urandom >"$mount_point/other"
sync "$victim" "$mount_point/other"
node=$(stat -c %i "$victim")

# scrub TEXT STATUS: scrub ends so and says so, in one line.
scrub() {
    local output status=0
    output=$("$bin/tiffin" scrub "$mount_point" 2>&1) || status=$?
    [[ $status -eq $2 && $output == *"$1"* ]] ||
        fail "tiffin scrub ended with $status and '$output', expected $2 and '$1'"
    [[ $(wc -l <<<"$output") -eq 1 ]] || fail "not one line: $output"
}
# Flips a bit in the block of the image that holds 4096 bytes of a file from an offset on.
flip_a_bit() {
    python3 - "$image" "$1" "$2" <<'PYTHON'
import sys

with open(sys.argv[2], "rb") as file:
    file.seek(int(sys.argv[3]))
    wanted = file.read(4096)
with open(sys.argv[1], "r+b") as image:
    place = image.read().find(wanted)
    if place < 0 or place % 4096 != 0:
        sys.exit("the data is not in the image")
    image.seek(place + 1000)
    byte = image.read(1)[0]
    image.seek(place + 1000)
    image.write(bytes([byte ^ 0x10]))
PYTHON
}

say "no errors"
scrub "no errors" 0
[[ -z $("$bin/tiffin" scrub -q "$mount_point" 2>&1) ]] || fail "tiffin scrub -q says something"
say "bars on terminals"
script -qec "$bin/tiffin scrub $mount_point" /dev/null >"$work/terminal"
grep -q '\[.*\].*%' "$work/terminal" || fail "no bar: $(<"$work/terminal")"
"$bin/tiffin" scrub "$mount_point" >"$work/pipe" 2>&1
! grep -q '\[' "$work/pipe" || fail "a bar in a pipe: $(<"$work/pipe")"

say "statistics"
"$bin/tiffin" stats --json "$mount_point" >"$work/stats"
python3 - "$work/stats" <<'PYTHON'
import json
import sys

operations = json.load(open(sys.argv[1]))
for name in ("LOOKUP", "MKDIR", "CREATE", "WRITE", "FSYNC", "IOCTL"):
    one = operations[name]
    assert one["count"] > 0 and one["total_ns"] > 0, (name, one)
    assert sum(one["buckets"]) == one["count"], (name, one)
    assert one["p50_ns"] <= one["p90_ns"] <= one["p99_ns"] <= one["p999_ns"], (name, one)
assert operations["MKDIR"]["count"] == 2, operations["MKDIR"]
assert operations["WRITE"]["bytes"] == 11000000, operations["WRITE"]
assert all(one["errors"] == 0 for one in operations.values())
PYTHON
"$bin/tiffin" stats "$mount_point" | grep -q "^MKDIR  *2  *0 " || fail "the table differs"

say "a bit of a file"
flip_a_bit "$victim" 819200
scrub "1 error in" 1
grep -q "wrong checksum: node $node, offset 819200" "$log" || fail "the log does not say where"
[[ $(find "$mount_point" -inum "$node") == "$victim" ]] || fail "the node does not lead to the file"
echo 3 2>/dev/null >/proc/sys/vm/drop_caches || echo "not run: reading around the cache: no permission"
if [[ -w /proc/sys/vm/drop_caches ]]; then
    ! cat "$victim" >/dev/null 2>&1 || fail "wrong data was read"
    cat "$mount_point/other" >/dev/null || fail "sound data was not read"
fi
unmount_device
status=0
"$bin/fsck.tiffin" -n --data "$device" >"$work/fsck" 2>&1 || status=$?
[[ $status -eq 4 ]] || fail "fsck.tiffin --data ended with $status: $(<"$work/fsck")"
grep -q '"/some/directory/victim"' "$work/fsck" || fail "fsck.tiffin does not name the file"

say "a file that is written again is sound"
mount_device
rm "$victim"
# The kernel tells the file system later that it has forgotten the file, which has its blocks until then.
wait_until "$bin/tiffin" scrub -q "$mount_point" 2>"$work/removed"
scrub "no errors" 0
unmount_device

say "a bit of the tree"
leaf=$("$bin/tiffin" dump "$device" tree | sed -n 's/^ *level 0  block \([0-9]*\) .*/\1/p' | tail -n 1)
mount_device
printf '\377\377' | dd of="$image" bs=1 seek=$((leaf * 4096 + 2000)) conv=notrunc status=none
scrub "1 error in" 1
grep -q "tree node at block $leaf" "$log" || fail "the log does not say where"
take_away
wait_until has_ended "$server"
server=""

say "a repair whose report goes nowhere"
"$bin/fsck.tiffin" -y -f "$device" >"$work/fsck" || true
mount_device
content=$(printf 'content to be damaged %.0s' {1..300})
for number in {1..150}; do
    echo "$content" >"$mount_point/damaged-$number"
done
unmount_device
leaf=$("$bin/tiffin" dump "$device" tree | sed -n 's/^ *level 0  block \([0-9]*\) .*/\1/p' | tail -n 1)
python3 - "$image" "$leaf" <<'PYTHON'
import sys

with open(sys.argv[1], "r+b") as file:
    content = file.read()
    for place in range(0, len(content), 4096):  # the first block of each
        if content.startswith(b"content to be damaged", place):
            file.seek(place)
            file.write(b"C")
    file.seek(int(sys.argv[2]) * 4096 + 2000)
    file.write(b"\xff\xff")
PYTHON
"$bin/fsck.tiffin" -n -f -v --data "$device" >"$work/fsck" 2>&1 || true
[[ $(wc -c <"$work/fsck") -gt 8192 ]] || fail "a report that fits a buffer"
grep -q 'node-invalid\|superblock-older' "$work/fsck" || fail "the tree is not damaged: $leaf $(grep -v damaged- "$work/fsck" | head -n 5)"
status=0
"$bin/fsck.tiffin" -y -f -v --data "$device" >/dev/full 2>&1 || status=$?
[[ $status -eq 4 ]] || fail "fsck.tiffin ended with $status where its report goes nowhere"
"$bin/fsck.tiffin" -n -f "$device" >"$work/fsck" || true
! grep -q 'node-invalid\|superblock-older' "$work/fsck" || fail "not repaired: $(head -n 3 "$work/fsck")"
mount_device
! "$bin/tiffin" status --json "$mount_point" >/dev/full 2>"$work/status" || fail "nothing is said of lost output"
unmount_device
echo "passed"
