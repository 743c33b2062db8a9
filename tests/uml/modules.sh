#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The modules themselves: two file systems on one framework, references, what is refused. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 64

say "the option kernel of mount.tiffin"
make_file_system
# mount.tiffin OPTIONS: fails, and says TEXT.
refuses() {
    ! "$bin/mount.tiffin" -o "$1" "$device" "$mount_point" >/tmp/said 2>&1 || fail "mounted with $1"
    grep -q "$2" /tmp/said || fail "with $1: $(</tmp/said)"
}
refuses kernel "has no module for tiffin.* Without the option kernel, /dev/ram0 is mounted through FUSE"
load_modules
refuses kernel,max_threads=4 "its log (dmesg) may say more"
"$bin/mount.tiffin" -f -o kernel "$device" "$mount_point" || fail "a pretended mount"
! findmnt "$mount_point" >/dev/null || fail "a pretended mount was made"
"$bin/mount.tiffin" -o kernel,noatime,lazytime -o nosuid "$device" "$mount_point" || fail "mount.tiffin -o kernel"
[[ $(findmnt -n -o FSTYPE,OPTIONS "$mount_point") =~ ^tiffin\ +rw,nosuid,noatime.*lazytime ]] || fail "$(findmnt -n "$mount_point")"
[[ $("$bin/tiffin" version "$mount_point") == *"the kernel's module"* ]] || fail "tiffin version"
"$bin/mount.tiffin" -r -o remount,kernel,lazytime "$device" "$mount_point" || fail "mount.tiffin -o remount"
! touch "$mount_point/x" 2>/dev/null || fail "a mount that became read-only was written to"
unmount_device
for address in mem:64M tiffin://localhost/v; do
    ! "$bin/mount.tiffin" -o kernel "$address" "$mount_point" 2>/tmp/said || fail "$address was mounted"
    grep -q "mounts tiffin on disks and images" /tmp/said || fail "$address: $(</tmp/said)"
done

say "hello"
insmod "$modules/tiffin_hello.ko"
mkdir /tmp/hello
mount -t tiffin_hello none /tmp/hello
[[ $(</tmp/hello/hello) == Hello* ]] || fail "hello: $(</tmp/hello/hello)"
echo "something else" >/tmp/hello/hello
[[ $(</tmp/hello/hello) == "something else" ]] || fail "hello does not keep what is written"
[[ $(stat -c %s /tmp/hello/hello) -eq 15 ]] || fail "the size of hello"
python3 - /tmp/hello/hello <<'END' || fail "see above"
import os, sys
file = os.open(sys.argv[1], os.O_RDWR)
out = os.open("/tmp/sent", os.O_RDWR | os.O_CREAT)
assert os.sendfile(out, file, 0, 1000) == 15
assert os.sendfile(file, out, 0, 4) == 4
assert os.pread(file, 100, 0) == b"something else\n"
os.posix_fadvise(file, 0, 1000, os.POSIX_FADV_WILLNEED)
END
! touch /tmp/hello/new 2>/dev/null || fail "hello made a file"
! rm /tmp/hello/hello 2>/dev/null || fail "hello removed its file"
! rmmod tiffin_hello 2>/dev/null || fail "a module that is mounted was unloaded"
umount /tmp/hello
rmmod tiffin_hello

say "references"
make_file_system
mount_device rw
! rmmod tiffin_tiffinfs 2>/dev/null || fail "a module that is mounted was unloaded"
! rmmod tiffin_vfs 2>/dev/null || fail "the framework was unloaded"
exec {file}>"$mount_point/open"
! umount "$mount_point" 2>/dev/null || fail "a mount with an open file was taken away"
rm "$mount_point/open"
echo "still there" >&"$file"
exec {file}>&-
umount "$mount_point"
check_device "an open file"

say "a newer module for the next mount"
rmmod tiffin_tiffinfs
insmod "$modules/tiffin_tiffinfs.ko"
for _ in 1 2 3 4 5; do
    mount_device rw
    echo x >>"$mount_point/count"
    unmount_device
done
mount_device rw
[[ $(wc -l <"$mount_point/count") -eq 5 ]] || fail "lines are missing"

say "a change of a read-only mount that says nothing of that"
unmount_device
mount_device ro
dd if="$device" of=/tmp/copy bs=1M iflag=direct 2>/dev/null
python3 - "$mount_point" <<'END' || fail "see above"
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
FSCONFIG, FSPICK, AT_FDCWD, CMD_RECONFIGURE = 431, 433, -100, 7
context = libc.syscall(FSPICK, AT_FDCWD, sys.argv[1].encode(), 0)
assert context >= 0, ctypes.get_errno()
assert libc.syscall(FSCONFIG, context, CMD_RECONFIGURE, None, None, 0) == 0, ctypes.get_errno()
END
dd if="$device" of=/tmp/after bs=1M iflag=direct 2>/dev/null
cmp /tmp/copy /tmp/after || fail "it was written to"
rm /tmp/after

say "options"
unmount_device
mount_device cache=8M,commit=7,errors=continue
[[ $(findmnt -n -o OPTIONS "$mount_point") == *,cache=8388608,commit=7,errors=continue ]] || fail "$(findmnt -n "$mount_point")"
mount -o remount,ro,commit=7 "$mount_point" || fail "a remount that names what is so"
for mode in rw ro; do
    mount -o "remount,$mode" "$mount_point" || fail "remount,$mode"
done
for words in commit=8 cache=9M errors=remount-ro norecovery; do
    ! mount -o "remount,$words" "$mount_point" 2>/dev/null || fail "a remount changed $words"
done
unmount_device
for words in cache=1 cache=2x cache= cache=M cache=17592186044417M cache=2T commit=86401 commit=x commit=-1 errors=panic norecovery nonsense; do
    ! mount -t tiffin -o "$words" "$device" "$mount_point" 2>/dev/null || fail "mounted with $words"
done
mount_device ro,norecovery
! mount -o remount,rw "$mount_point" 2>/dev/null || fail "norecovery became writable"
unmount_device
# A change is durable after the interval, though nobody asks for it: the module is asked what it has committed.
mount_device commit=1
echo late >"$mount_point/late"
sleep 3
dd if="$device" of=/tmp/copy bs=1M iflag=direct 2>/dev/null
unmount_device
"$bin/fsck.tiffin" -y -f /tmp/copy >/tmp/fsck || [[ $? -eq 1 ]] || fail "fsck of the copy: $(</tmp/fsck)"
[[ $(tail -1 /tmp/fsck) =~ \ ([0-9]+)\ objects ]] || fail "$(</tmp/fsck)"
objects=${BASH_REMATCH[1]}
"$bin/fsck.tiffin" -n -f "$device" >/tmp/fsck || fail "$(</tmp/fsck)"
[[ $(tail -1 /tmp/fsck) =~ \ ${objects}\ objects ]] || fail "the copy has $objects objects, and the volume: $(</tmp/fsck)"
# At once, where the mount says so: names, and with sync attributes, too.
for word in dirsync sync; do
    mount_device "$word,commit=3600"
    mkdir "$mount_point/$word"
    mknod "$mount_point/$word/made" p
    ln "$mount_point/$word/made" "$mount_point/$word/linked"
    mv "$mount_point/$word/made" "$mount_point/$word/moved"
    [[ $word == dirsync ]] || chmod 0421 "$mount_point/$word/linked"
    dd if="$device" of=/tmp/copy bs=1M iflag=direct 2>/dev/null
    (cd "$mount_point" && find . -printf '%p %y %m %n\n' | sort) >/tmp/names
    unmount_device
    "$bin/fsck.tiffin" -y -f /tmp/copy >/tmp/fsck || [[ $? -eq 1 ]] || fail "fsck of the copy with $word: $(</tmp/fsck)"
    dd if=/tmp/copy of="$device" bs=1M 2>/dev/null
    mount_device rw
    (cd "$mount_point" && find . -printf '%p %y %m %n\n' | sort) | diff /tmp/names - >/tmp/diff || fail "with $word: $(</tmp/diff)"
    unmount_device
done
rm /tmp/copy
mount_device rw

say "the tiffin command"
"$bin/tiffin" status "$mount_point" >/tmp/said || fail "tiffin status"
for line in "host: the kernel's module$" "transactions: "; do
    grep -q "^$line" /tmp/said || fail "no $line: $(</tmp/said)"
done
head -c 5M < <(yes "to be scrubbed") >"$mount_point/scrubbed"
sync
"$bin/tiffin" scrub "$mount_point" >/tmp/said || fail "tiffin scrub: $(</tmp/said)"
grep -q "checked, no errors" /tmp/said || fail "$(</tmp/said)"
"$bin/tiffin" grow "$mount_point" >/tmp/said 2>&1 || fail "tiffin grow where there is nothing: $(</tmp/said)"
! setpriv --reuid 1000 --clear-groups "$bin/tiffin" scrub "$mount_point" 2>/tmp/said || fail "a user scrubs"
unmount_device
# One block of the file is damaged: the scrub finds it, and no other.
python3 - "$device" <<'END' || fail "no block of it was found"
import mmap, os, sys
device = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
size = os.lseek(device, 0, os.SEEK_END)
block = mmap.mmap(-1, 4096)
for offset in range(0, size, 4096):
    os.preadv(device, [block], offset)
    if block[:].count(b"to be scrubbed") > 250:
        block[0] ^= 1
        os.pwritev(device, [block], offset)
        sys.exit(0)
sys.exit(1)
END
mount_device rw
! "$bin/tiffin" scrub "$mount_point" >/tmp/said 2>&1 || fail "the scrub has found nothing"
grep -q "1 error in" /tmp/said || fail "$(</tmp/said)"
rm "$mount_point/scrubbed"
unmount_device
check_device "a scrub"
# A device that grows under a mount.
insmod "$kernel_modules/drivers/block/loop.ko"
truncate --size 64M /tmp/image
loop=$(losetup --find --show /tmp/image)
"$bin/mkfs.tiffin" -q "$loop"
mount -t tiffin "$loop" "$mount_point"
! head -c 80M /dev/zero >"$mount_point/large" 2>/dev/null || fail "80 MiB on 64"
truncate --size 128M /tmp/image
losetup --set-capacity "$loop"
"$bin/tiffin" grow "$mount_point" >/tmp/said || fail "tiffin grow: $(</tmp/said)"
head -c 80M /dev/zero >"$mount_point/large" || fail "80 MiB on 128"
umount "$mount_point"
"$bin/fsck.tiffin" -n -f --data "$loop" >/tmp/fsck || fail "after growing: $(</tmp/fsck)"
losetup --detach "$loop"
flock /tmp/image "$bin/mount.tiffin" -o kernel /tmp/image "$mount_point" 2>/tmp/said && fail "an image that somebody else has was mounted"
grep -q "in use by another process" /tmp/said || fail "$(</tmp/said)"
"$bin/mount.tiffin" -o kernel,errors=remount-ro /tmp/image "$mount_point" || fail "an image"
mount -o remount,errors=remount-ro,commit=5 "$mount_point" || fail "a remount that names the defaults"
umount "$mount_point"
rm /tmp/image
mount_device rw

say "shutdown"
python3 - "$mount_point" <<'END' || fail "see above"
import errno, fcntl, os, struct, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
file = os.open(sys.argv[1] + "/late", os.O_RDWR | os.O_CREAT)
os.write(file, b"not durable")
# What cannot be made shorter must not look as if the part that was to be cut off were zeros.
content = os.urandom(5000)
kept = os.open(sys.argv[1] + "/kept", os.O_RDWR | os.O_CREAT)
os.write(kept, content)
os.fsync(kept)
# Nor what cannot be written as if it were, in a small file either.
small = [os.open(sys.argv[1] + f"/small{size}", os.O_RDWR | os.O_CREAT) for size in (0, 100)]
os.write(small[1], bytes(100))
os.fsync(small[1])
os.fsync(small[0])
fcntl.ioctl(folder, 0x8004587d, struct.pack("I", 2))
for call in (lambda: os.fsync(file), lambda: os.mkdir(sys.argv[1] + "/new"), lambda: os.stat(sys.argv[1] + "/count"),
             lambda: os.pwrite(small[0], b"x", 0), lambda: os.pwrite(small[1], b"x", 50)):
    try:
        call()
        sys.exit("a call has succeeded after the shutdown")
    except OSError as error:
        assert error.errno == errno.EIO, error
for length in (4990, 2000, 0):
    try:
        os.ftruncate(kept, length)
        sys.exit("a file was made shorter after the shutdown")
    except OSError as error:
        assert error.errno == errno.EIO, error
    try:
        found = os.pread(kept, 5000, 0)
        assert found == content[:len(found)], length
    except OSError as error:
        assert error.errno == errno.EIO, error
END
umount "$mount_point"
mount_device rw
[[ $(wc -l <"$mount_point/count") -eq 5 ]] || fail "lines are missing after a shutdown"

say "what a shutdown flushes, and what O_DSYNC has made durable"
# shut_down MODE: after a write that nobody has flushed, and an allocation by a descriptor with O_DSYNC.
shut_down() {
    python3 - "$mount_point" "$1" <<'END' || fail "see above"
import fcntl, os, struct, sys
folder = os.open(sys.argv[1], os.O_RDONLY)
file = os.open(sys.argv[1] + "/allocated", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.fsync(file)
os.posix_fallocate(os.open(sys.argv[1] + "/allocated", os.O_RDWR | os.O_DSYNC), 0, 10000)
file = os.open(sys.argv[1] + "/written", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(file, b"something" * 1000)
fcntl.ioctl(folder, 0x8004587d, struct.pack("I", int(sys.argv[2])))
END
    umount "$mount_point"
    mount_device rw
    [[ $(stat -c %s "$mount_point/allocated") -eq 10000 ]] || fail "an allocation is lost"
}
shut_down 2
shut_down 0
[[ $(stat -c %s "$mount_point/written") -eq 9000 ]] || fail "a shutdown that flushes has lost what was written"
! "$bin/fsck.tiffin" -n "$device" >/tmp/said 2>&1 || fail "a disk was checked that the kernel writes to"
grep -q "is mounted on $mount_point" /tmp/said || fail "fsck of a mounted disk: $(</tmp/said)"
unmount_device
flock -s "$device" "$bin/mount.tiffin" -o kernel "$device" "$mount_point" 2>/tmp/said && fail "a disk that is read was mounted"
grep -q "is in use by another program" /tmp/said || fail "a disk that is read: $(</tmp/said)"
check_device "a shutdown"

say "a device that is taken"
mkfs.ext4 -q -F "$device"
mount -t ext4 "$device" "$mount_point"
for options in rw ro; do
    ! mount -t tiffin -o "$options" "$device" /tmp/hello 2>/dev/null || fail "a device was mounted that ext4 has"
done
umount "$mount_point"
blockdev --setro "$device"
! mount -i -t tiffin -o rw "$device" /tmp/hello 2>/dev/null || fail "a device that is read-only was mounted to be written"
blockdev --setrw "$device"

say "what is no tiffinfs"
dd if=/dev/zero of="$device" bs=1M count=64 2>/dev/null
! mount -t tiffin "$device" "$mount_point" 2>/dev/null || fail "zeros were mounted"
! mount -t tiffin -o nonsense "$device" "$mount_point" 2>/dev/null || fail "an unknown option was taken"
unload_modules
