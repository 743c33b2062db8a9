#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Ordinary programs on a mount: what they copy, pack and clone arrives, and the kernel gives back every
# reference to what is gone. With a part of /usr/include, or all of it where TIFFIN_TEST_WHOLE is set.
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

mount_it -o rw
source_tree=/usr/include
if [[ -z ${TIFFIN_TEST_WHOLE:-} ]]; then
    source_tree=$work/source
    mkdir "$source_tree"
    cp -a /usr/include/{linux,c++} "$source_tree"
fi
tree=$mount_point/tree

cp -a "$source_tree/." "$tree"
diff -r --no-dereference "$source_tree" "$tree" || fail "cp -a"
differences=$(rsync -nac --delete --out-format=%n "$source_tree/" "$tree/") || fail "rsync cannot compare"
[[ -z $differences ]] || fail "rsync sees differences: $differences"

tar -C "$mount_point" -cf "$mount_point/tree.tar" tree
mkdir "$mount_point/unpacked"
tar -C "$mount_point/unpacked" -xf "$mount_point/tree.tar"
diff -r --no-dereference "$tree" "$mount_point/unpacked/tree" || fail "tar"

# A file with holes keeps them, although the kernel has just written it.
truncate -s 64M "$mount_point/sparse"
printf data | dd of="$mount_point/sparse" bs=1 seek=$((40 << 20)) conv=notrunc status=none
cp --sparse=always "$mount_point/sparse" "$mount_point/copy"
cmp "$mount_point/sparse" "$mount_point/copy" || fail "sparse copy"
[[ $(stat -c %b "$mount_point/copy") -le 64 ]] || fail "the copy has lost its holes"

python3 "$(dirname "$0")/../support/in_memory_is_no_hole.py" "$mount_point" || fail "data that is only in memory"

export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost
git -C "$tree" -c init.defaultBranch=main init -q
git -C "$tree" add -A linux
git -C "$tree" commit -q -m "a tree"
git clone -q --no-hardlinks "$tree" "$mount_point/clone"
git -C "$mount_point/clone" fsck --full --strict >"$work/fsck" 2>&1 || fail "git fsck: $(<"$work/fsck")"
diff -r "$tree/linux" "$mount_point/clone/linux" || fail "git clone"

# Hard links, symbolic links, special files and attributes.
ln "$mount_point/sparse" "$mount_point/link"
[[ $(stat -c %h "$mount_point/sparse") -eq 2 ]] || fail "link count"
mkfifo "$mount_point/fifo"
(echo through >"$mount_point/fifo") &
[[ $(<"$mount_point/fifo") == through ]] || fail "fifo"
wait

# The access time moves with a read that reaches the file system.
printf data >"$mount_point/read"
touch -d '2 days ago' "$mount_point/read"
before=$(date +%s)
dd if="$mount_point/read" of=/dev/null iflag=direct status=none

[[ $(stat -c %X "$mount_point/read") -ge $before ]] || fail "a read did not move the access time"

rm -rf "${mount_point:?}"/*
[[ -z $(ls -A "$mount_point") ]] || fail "rm -rf left something"
objects_are_gone() { "$tiffin" status "$mount_point" | grep -qx "objects: 1"; }
wait_until objects_are_gone
"$tiffin" status "$mount_point" | grep -qx "references: 0" || fail "references are left"
unmount_it
echo "passed"
