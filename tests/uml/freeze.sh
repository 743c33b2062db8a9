#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What a host asks of a file system beside its operations: freeze and thaw, memory back, promised room that is given back;
# and whiteouts. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
# shellcheck source=tests/uml/lib/promises.sh
source "$(dirname "$0")/lib/promises.sh"
make_device 200
load_modules
make_file_system
mount_device rw

say "a copy of a frozen device is a clean volume with everything in it"
cp -a "$repository/docs" "$mount_point/"
head -c 20000000 /dev/urandom >/tmp/large
cp /tmp/large "$mount_point/large"
fsfreeze -f "$mount_point" || fail "freeze"
! fsfreeze -f "$mount_point" 2>/dev/null || fail "frozen twice"
(echo "later" >"$mount_point/later") &
writer=$!
cp "$device" /tmp/frozen
"$bin/fsck.tiffin" -n -f --data /tmp/frozen >/tmp/fsck 2>&1 || fail "the copy: $(</tmp/fsck)"
diff -r "$repository/docs" "$mount_point/docs" || fail "reading while it is frozen"
cmp "$device" /tmp/frozen || fail "something was written while it was frozen"
fsfreeze -u "$mount_point" || fail "thaw"
wait "$writer"
[[ $(<"$mount_point/later") == later ]] || fail "the writer that had to wait"
! fsfreeze -u "$mount_point" 2>/dev/null || fail "thawed twice"
unmount_device
cp /tmp/frozen "$device"
rm /tmp/frozen
mount_device ro
[[ ! -e $mount_point/later ]] || fail "the copy has what came later"
diff -r "$repository/docs" "$mount_point/docs" || fail "the copy"
cmp /tmp/large "$mount_point/large"
unmount_device
mount_device rw

say "a second copy has nothing of the first"
for copy in 1 2; do
    cp /tmp/large "$mount_point/copied-$copy"
    fsfreeze -f "$mount_point"
    cp "$device" /tmp/frozen
    fsfreeze -u "$mount_point"
    rm "$mount_point/copied-$copy"
done
unmount_device
cp /tmp/frozen "$device"
rm /tmp/frozen
check_device "the second copy"
mount_device ro
cmp /tmp/large "$mount_point/copied-2" || fail "the second copy"
[[ ! -e $mount_point/copied-1 ]] || fail "the second copy has what had been removed"
unmount_device
mount_device rw

say "caches give memory back"
for folder in 1 2 3 4; do
    mkdir "$mount_point/$folder"
    (cd "$mount_point/$folder" && seq 1 5000 | xargs touch)
done
sync
before=$(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)
for _ in 1 2 3; do echo 2 >/proc/sys/vm/drop_caches; done
after=$(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)
# 20,000 inodes and dentries are some 20 MB; nodes of the tree and objects of the core come on top.
[[ $((after - before)) -gt 20000 ]] || fail "only $((after - before)) KiB came back"
[[ $(find "$mount_point" -type f | wc -l) -gt 20000 ]] || fail "files are missing"

say "no promise outlives its page"
check_promises || fail "see above"

say "whiteouts"
python3 - "$mount_point" <<'END' || fail "see above"
import ctypes, os, stat, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
def rename(old, new, flags):
    if libc.renameat2(-100, old.encode(), -100, new.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), old)
os.mkdir("w")
open("w/file", "w").write("content")
os.mkdir("w/directory")
rename("w/file", "w/moved", 4)
rename("w/directory", "w/moved directory", 4)
for name in ("w/file", "w/directory"):
    status = os.lstat(name)
    assert stat.S_ISCHR(status.st_mode) and status.st_rdev == 0 and status.st_nlink == 1, name
assert open("w/moved").read() == "content"
assert os.stat("w").st_nlink == 3
END
remount "at the end"
[[ -c $mount_point/w/file && -d "$mount_point/w/moved directory" ]] || fail "whiteouts after a remount"
unmount_device
unload_modules
say "done"
