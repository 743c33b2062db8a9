#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A device that fails: reads and writes say so, nothing that was durable is lost, and the volume is whole when the device
# works again. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 64
load_device_mapper mod flakey
load_modules
disk=$device
sectors=$((64 * 2048))

works="0 $sectors linear $disk 0"
refuses_writes="0 $sectors flakey $disk 0 0 3600 1 error_writes"
fails="0 $sectors error"
map_device "$works"
make_file_system
mount_device rw
head -c 5000000 /dev/urandom >/tmp/source
cp /tmp/source "$mount_point/durable"
cp /tmp/source "$mount_point/read"
touch -d 2001-01-01 "$mount_point/read"
: >"$mount_point/small"
sync -f "$mount_point"

say "reading"
drop_caches
set_table "$fails"
! cmp -s /tmp/source "$mount_point/durable" || fail "a file was read from a device that fails"
dd if="$mount_point/durable" of=/dev/null bs=4096 count=1 2>/tmp/error && fail "dd could read"
grep -q "Input/output error" /tmp/error || fail "dd: $(</tmp/error)"
! dd if="$mount_point/durable" of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null || fail "dd could read directly"
set_table "$works"
cmp /tmp/source "$mount_point/durable" || fail "a file cannot be read although the device works again"

say "writing"
set_table "$refuses_writes"
python3 - "$mount_point" <<'END' || fail "see above"
import errno, mmap, os, sys
def refused(call, *arguments):
    try:
        call(*arguments)
        return False
    except OSError as error:
        assert error.errno in (errno.EIO, errno.EROFS), error
        return True
file = os.open(sys.argv[1] + "/durable", os.O_RDWR)
assert os.pwrite(file, b"x" * 2000000, 1000000) == 2000000
if not refused(os.fsync, file):
    sys.exit("fsync has succeeded on a device that cannot be written")
direct = os.open(sys.argv[1] + "/durable", os.O_RDWR | os.O_SYNC)
if not refused(os.pwrite, direct, b"y" * 4096, 0):
    sys.exit("a synchronous write has succeeded")
def make():
    folder = sys.argv[1] + "/new"
    os.mkdir(folder)
    os.fsync(os.open(folder, os.O_RDONLY))
if not refused(make):
    sys.exit("a directory is durable on a device that cannot be written")
small = os.open(sys.argv[1] + "/small", os.O_RDWR)
if not refused(os.write, small, b"x"):
    sys.exit("a volume that has stopped has taken a write to a small file")
os.close(file)
END
# Who copies from it what can be saved is not told of access times that could not be written.
drop_caches
touch -a -d 2001-01-01 "$mount_point/read" 2>/dev/null || true
cmp /tmp/source "$mount_point/read" || fail "a file of a volume that has stopped cannot be read"
sync -f "$mount_point" 2>/dev/null || true
python3 - "$mount_point/read" <<'END' || fail "reading what can be saved"
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
assert os.preadv(file, [mmap.mmap(-1, 4096)], 4096) == 4096
assert os.lseek(file, 0, os.SEEK_DATA) == 0
assert os.lseek(file, 0, os.SEEK_HOLE) == 5000000
END
filefrag "$mount_point/read" >/tmp/fiemap || fail "the extents of what can be saved: $(</tmp/fiemap)"
umount "$mount_point" || fail "a mount whose device has failed cannot be taken away"
set_table "$works"

say "afterwards"
mount_device rw
# Blocks are not overwritten: it has what was durable, or some of the later write where that has reached the device.
[[ $(stat -c %s "$mount_point/durable") -eq 5000000 ]] || fail "the size of the durable file"
cmp -n 1000000 /tmp/source "$mount_point/durable" || fail "what was durable is lost"
cmp -i 3000000 /tmp/source "$mount_point/durable" || fail "what was durable is lost behind the write that failed"
cp /tmp/source "$mount_point/again"
unmount_device
check_device "at the end"
unmap_device
unload_modules
