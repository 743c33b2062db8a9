#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Counts the kernel's messages for everyday operations. Each costs more time than the file system's
# own work, so one too many is a defect. What newer kernels save is welcome: most of these
# are upper bounds.
#
# Not our choice: after a directory has changed, the kernel asks for its attributes before it checks
# permissions there (GETATTR), asks once for each file that is written whether it has capabilities
# (GETXATTR; again after each message that brought attributes), and sends the times of what it has cached (SETATTR).
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

mount_it -o rw
cd "$mount_point"

# "LOOKUP 3" and so on. Forgets and the releases of directories have no answer that anybody waits for, ioctls are this counting, and
# anybody's df asks all mounts. Of a file, since the folder would be opened for it.
counters() {
    "$tiffin" stats warm_up |
        awk 'NR > 1 && $1 !~ /^(FORGET|RELEASEDIR|IOCTL|STATFS)$/ { print $1, $2 }' | sort
}

# expect NAME "REQUEST=MAXIMUM REQUEST==EXACTLY ..." COMMAND: the command, a function or words, costs no more, and what it
# is about shows.
expect() {
    local name=$1 allowed=$2 request count maximum word
    shift 2
    counters >"$work/before"
    "$@"
    counters >"$work/after"
    join -a 2 -e 0 -o 0,1.2,2.2 "$work/before" "$work/after" | awk '$3 > $2 { print $1, $3 - $2 }' >"$work/took"
    while read -r request count; do
        maximum=$(tr ' ' '\n' <<<"$allowed" | awk -F'=+' -v r="$request" '$1 == r { print $2 }')
        ((count <= ${maximum:-0})) || fail "$name: $count $request, expected at most ${maximum:-0}"
    done <"$work/took"
    for word in $allowed; do
        [[ $word != *==* ]] || grep -qx "${word%%=*} ${word##*=}" "$work/took" ||
            fail "$name: expected $word, counted $(paste -s -d , "$work/took")"
    done
}

create() { : >"$1"; }
write_small() { printf 'some data' >"$1"; }
write_and_sync() { printf 'some data' | dd of="$1" conv=fsync status=none; }
overwrite() { printf 'other' 1<>"$1"; }
forget() { dd if="$1" iflag=nocache count=0 status=none; }
read_it() { read -r _ <"$1" || true; }
exists() { [[ -e $1 ]]; }
is_missing() { [[ ! -e $1 ]]; }

# The kernel learns here that there is nothing to open and to flush.
create warm_up
read_it warm_up
ls >/dev/null
mkdir d
ls d >/dev/null

expect "create and close" "LOOKUP=1 CREATE==1 GETATTR=1" create d/a
expect "create, write, close" "LOOKUP=1 CREATE==1 GETATTR=2 GETXATTR=1 WRITE==1 SETATTR=1" \
    write_small d/b
expect "create, write, fsync, close" \
    "LOOKUP=1 CREATE==1 GETATTR=2 GETXATTR=1 WRITE==1 FSYNC==1 SETATTR=1" write_and_sync d/c
expect "first stat after a write" "GETATTR=2" exists d/b
expect "stat" "" exists d/b
expect "first look for what is missing" "LOOKUP==1" is_missing d/missing
expect "second look" "" is_missing d/missing
expect "open, read, close" "" read_it d/b
forget d/b
expect "open, cold read, close" "READ==1" read_it d/b
expect "open, overwrite, close" "WRITE==1 SETATTR=1 GETXATTR=1" overwrite d/b
expect "open and truncate, close" "SETATTR==1" create d/b
expect "mkdir" "LOOKUP=1 MKDIR==1 GETATTR=1" mkdir d/e
# GETATTR of both the directory and the file, which the command looks at first.
expect "rmdir" "RMDIR==1 GETATTR=2" rmdir d/e
expect "unlink" "UNLINK==1 GETATTR=2 SETATTR=1" rm -f d/a
expect "rename" "LOOKUP=1 RENAME==1 GETATTR=2 SETATTR=1" mv -T d/b d/moved
expect "rename back" "LOOKUP=1 RENAME==1 GETATTR=2 SETATTR=1" mv -T d/moved d/b
expect "link" "LOOKUP=1 LINK==1 GETATTR=2 SETATTR=1" ln -T d/b d/linked
expect "chmod" "SETATTR==1 GETATTR=2" chmod 600 d/b
expect "symlink" "LOOKUP=1 SYMLINK==1 GETATTR=1" ln -s -T target d/s
expect "first readlink" "READLINK==1 GETATTR=1" readlink d/s >/dev/null
expect "second readlink" "" readlink d/s >/dev/null
# Few entries: older kernels read a page at a time, where an entry with its attributes takes 160 bytes.
mkdir few
for i in {1..10}; do create "few/$i"; done
expect "first list" "OPENDIR==1 READDIR==1 READDIRPLUS==1 GETATTR=1" ls few >/dev/null
expect "second list" "OPENDIR==1 READDIR==1 READDIRPLUS==1 GETATTR=1" ls few >/dev/null

cd /
unmount_it

# Without the kernel's cache of written data there are no times to send.
mount_it -o rw,write_through
cd "$mount_point"
create warm_up
read_it warm_up
mkdir d
ls d >/dev/null
expect "create, write, close, write-through" "LOOKUP=1 CREATE==1 GETATTR=2 GETXATTR=1 WRITE==1" \
    write_small d/b
expect "rename, write-through" "LOOKUP=1 RENAME==1 GETATTR=2" mv -T d/b d/moved
expect "link, write-through" "LOOKUP=1 LINK==1 GETATTR=2" ln -T d/moved d/b
expect "unlink, write-through" "UNLINK==1 GETATTR=2" rm -f d/b
cd /
unmount_it

mount_it -o rw,cache_directories
cd "$mount_point"
create warm_up
read_it warm_up
ls >/dev/null
mkdir d
for i in {1..20}; do create "d/$i"; done
expect "first list, cache_directories" "READDIR=2 READDIRPLUS=2 GETATTR=1" ls d >/dev/null
expect "second list, cache_directories" "GETATTR=1" ls d >/dev/null
expect "third list, cache_directories" "" ls d >/dev/null
cd /
unmount_it
echo "passed"
