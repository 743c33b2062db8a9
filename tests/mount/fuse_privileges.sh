#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A write takes set-group-id away, and nothing else: a mode that somebody gives the file at the same time stays. And commands to
# a mount are for administrators.
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: it writes as another user, which takes root" && exit 77; }
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"
chmod 755 "$work"

mount_it --fs changing
file=$mount_point/file
: >"$file"
chmod 2666 "$file"
# The group may not execute, and the writer is not in it.
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "echo content >>'$file'"
mode=$(stat --format %a "$file")
[[ $mode == 640 ]] || fail "the mode is $mode, expected that of the chmod, 640"
unmount_it

# A change that fails may have changed a part: the bits have gone before.
bin=$(dirname "$tiffin")
truncate -s 64M "$work/image"
"$bin/mkfs.tiffin" -q "$work/image"
"$bin/mount.tiffin" "$work/image" "$mount_point"
head -c 12288 /dev/urandom >"$file"
place=$(od -An -tx1 -N16 -j8192 "$file" | tr -d ' \n')
chmod 4666 "$file"
fusermount3 -u "$mount_point" || umount "$mount_point"
python3 - "$work/image" "$place" <<'END'
import sys
with open(sys.argv[1], "r+b") as image:
    content = image.read()
    place = content.index(bytes.fromhex(sys.argv[2]))
    image.seek(place)
    image.write(bytes([content[place] ^ 1]))
END
"$bin/mount.tiffin" "$work/image" "$mount_point"
! setpriv --reuid 65534 --regid 65534 --clear-groups fallocate --punch-hole --offset 100 --length 8192 "$file" 2>/dev/null ||
    fail "a hole was made in a block that cannot be read"
[[ $(od -An -tx1 -N16 -j200 "$file" | tr -d ' 0\n') == "" ]] || fail "nothing of it was done, so that this tests nothing"
mode=$(stat --format %a "$file")
[[ $mode == 666 ]] || fail "the mode is $mode, expected 666, without set-user-id"
umount "$mount_point"

# Commands to the mount are for those who may administrate: neither user 0 without the capability, nor with that of a user
# namespace of its own.
"$bin/mkfs.tiffin" -q -f "$work/image"
"$bin/mount.tiffin" "$work/image" "$mount_point"
"$tiffin" scrub -q "$mount_point" || fail "root may not scrub"
without=(setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin)
! "${without[@]}" "$tiffin" scrub -q "$mount_point" 2>"$work/error" || fail "user 0 without CAP_SYS_ADMIN may scrub"
grep -q "only root and" "$work/error" || fail "scrub: $(<"$work/error")"
if "${without[@]}" unshare --user --map-root-user true 2>/dev/null; then
    ! "${without[@]}" unshare --user --map-root-user "$tiffin" scrub -q "$mount_point" 2>"$work/error" ||
        fail "user 0 of a user namespace may scrub"
    grep -q "only root and" "$work/error" || fail "scrub: $(<"$work/error")"
fi
umount "$mount_point"
echo "passed"
