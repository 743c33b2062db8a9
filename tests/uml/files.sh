#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What programs do with a mount of the module, and what is left of it after unmounting. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 300
load_modules
make_file_system
mount_device rw

say "trees"
mkdir "$mount_point/copies"
for tree in "$repository/docs" /usr/include/linux; do
    cp -a "$tree" "$mount_point/copies/"
    rsync -nac --hard-links --delete --out-format='%i %n' "$tree/" "$mount_point/copies/$(basename "$tree")/" >/tmp/diff
    [[ ! -s /tmp/diff ]] || fail "rsync sees differences of $tree: $(head -n 5 /tmp/diff)"
done
tar -C "$mount_point/copies" -cf "$mount_point/copies.tar" .
tar -C "$mount_point/copies" --compare -f "$mount_point/copies.tar" >/tmp/tar 2>&1 || fail "tar: $(head -n 5 /tmp/tar)"
drop_caches
mkdir "$mount_point/unpacked"
tar -C "$mount_point/unpacked" -xpf "$mount_point/copies.tar"
diff -r --no-dereference "$mount_point/copies" "$mount_point/unpacked" >/tmp/diff || fail "unpacked: $(head -n 5 /tmp/diff)"
mv "$mount_point/unpacked" "$mount_point/moved"
rm -r "$mount_point/copies"

say "a file that is only in memory is no hole for tar"
python3 "$repository/tests/support/in_memory_is_no_hole.py" "$mount_point" || fail "see above"

say "blocks of what is only in memory"
python3 - "$mount_point/counted" <<'END' || fail "see above"
import os, sys
KIB = 1024
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
def blocks():
    return os.fstat(file).st_blocks
for change, expected in ((lambda: os.pwrite(file, b"x" * 64 * KIB, 0), 64), (lambda: os.pwrite(file, b"y" * 64 * KIB, 0), 64),
                         (lambda: os.pwrite(file, b"z" * 64 * KIB, 1024 * KIB), 128), (lambda: os.ftruncate(file, 32 * KIB), 32),
                         (lambda: os.ftruncate(file, 0), 0), (lambda: os.pwrite(file, b"x", 8 * KIB), 4)):
    change()
    assert blocks() == 2 * expected, (blocks(), expected)
    os.fsync(file)
    assert blocks() == 2 * expected, (blocks(), expected, "after fsync")
END
rm "$mount_point/counted"

say "a file that becomes immutable while it is open"
python3 - "$mount_point/immutable" <<'END' || fail "see above"
import errno, fcntl, mmap, os, signal, struct, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(file, b"x" * 8192)
memory = mmap.mmap(file, 8192)
os.fsync(file)
fcntl.ioctl(file, 0x40086602, struct.pack("q", 0x10))
for flags in (0, os.O_DIRECT):
    fcntl.fcntl(file, fcntl.F_SETFL, flags)
    try:
        os.pwrite(file, mmap.mmap(-1, 4096), 0)
        sys.exit("an immutable file was written")
    except OSError as error:
        assert error.errno == errno.EPERM, error
child = os.fork()
if child == 0:
    memory[5000] = 1
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGBUS
fcntl.ioctl(file, 0x40086602, struct.pack("q", 0))
os.close(file)
os.unlink(sys.argv[1])
END

say "a large file"
head -c 60000000 /dev/urandom >/tmp/large
cp /tmp/large "$mount_point/large"
cmp /tmp/large "$mount_point/large"
drop_caches
cmp /tmp/large "$mount_point/large"

say "where files are on the device"
python3 "$repository/tests/uml/fiemap.py" "$mount_point" "$device" || fail "see above"

say "a file at random"
for seed in 1 2 3; do
    python3 "$repository/tests/uml/random_file.py" "$mount_point/random-$seed" "$seed" 500 || fail "seed $seed"
done

say "the longest file"
python3 - "$mount_point/longest" <<'END' || fail "see above"
import errno, os, sys
LONGEST = 1 << 62
def refused(call, *arguments):
    try:
        call(*arguments)
        sys.exit(f"{call.__name__}{arguments[1:]} has succeeded")
    except OSError as error:
        assert error.errno == errno.EFBIG, error
for flags in (0, os.O_DIRECT):
    file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC | flags)
    refused(os.pwrite, file, b"xy", LONGEST)
    refused(os.pwrite, file, b"xy", (1 << 63) - 10)
    os.fsync(file)
    refused(os.ftruncate, file, LONGEST + 1)
    refused(os.posix_fallocate, file, LONGEST, 1)
    assert os.fstat(file).st_size == 0
    assert os.pwrite(file, b"xy", LONGEST - 1) == 1
    os.fsync(file)
    assert os.fstat(file).st_size == LONGEST
    assert os.pread(file, 2, LONGEST - 1) == b"x"
    os.close(file)
os.unlink(sys.argv[1])
END

say "moving what lies behind the end of a file that waits in the page cache"
head -c 5000 /dev/urandom >"$mount_point/waits"
for options in "-i -o 8192 -l 4096" "-c -o 4096 -l 4096" "-i -o 100 -l 4096"; do
    # shellcheck disable=SC2086  # several words
    ! fallocate $options "$mount_point/waits" 2>/tmp/refused || fail "fallocate $options works"
    grep -q "Invalid argument" /tmp/refused || fail "fallocate $options: $(</tmp/refused)"
done
rm "$mount_point/waits"

say "what is reserved behind a file that becomes shorter than it was in memory"
python3 - "$mount_point/reserved" <<'END' || fail "see above"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
assert libc.fallocate(file, 1, 0, 8 << 20) == 0, ctypes.get_errno()  # FALLOC_FL_KEEP_SIZE
os.pwrite(file, b"x" * 12288, 0)
os.ftruncate(file, 8192)
os.fsync(file)
assert os.fstat(file).st_blocks * 512 <= 8192, os.fstat(file).st_blocks
# To the size that it has.
assert libc.fallocate(file, 1, 0, 8 << 20) == 0, ctypes.get_errno()
os.pwrite(file, b"x" * 12288, 8192)
os.ftruncate(file, 20480)
os.fsync(file)
assert os.fstat(file).st_blocks * 512 <= 20480, os.fstat(file).st_blocks
END

say "the device of what became read-only, as it is read through its page cache"
cat "$device" >/dev/null
head -c 3M /dev/urandom >"$mount_point/later"
mount -o remount,ro "$mount_point"
cmp <(cat "$device") <(dd "if=$device" bs=1M iflag=direct status=none) || fail "an old copy is read"
mount -o remount,rw "$mount_point"
rm "$mount_point/later"

say "the change attribute of NFS"
cookies=$(python3 "$repository/tests/uml/change_cookie.py" "$mount_point") || fail "$cookies"

say "again after a remount"
(cd "$mount_point" && find . -printf '%p %y %m %n %U:%G %s %T@ %C@ %l\n' | sort) >/tmp/names
remount "files"
(cd "$mount_point" && find . -printf '%p %y %m %n %U:%G %s %T@ %C@ %l\n' | sort) | diff /tmp/names - >/tmp/diff ||
    fail "names or attributes after a remount: $(head -n 5 /tmp/diff)"
cmp /tmp/large "$mount_point/large"
for seed in 1 2 3; do
    cmp "$mount_point/random-$seed" "$mount_point/random-$seed.expected"
done
python3 "$repository/tests/uml/change_cookie.py" "$mount_point" "$cookies" || fail "see above"
tar -C "$mount_point/moved" --compare -f "$mount_point/copies.tar" >/tmp/tar 2>&1 || fail "tar: $(head -n 5 /tmp/tar)"

say "read-only"
exec {file}<"$mount_point/large"
mount -o remount,ro "$mount_point" || fail "remount,ro"
! touch "$mount_point/new" 2>/dev/null || fail "a file could be made on a read-only mount"
mount -o remount,rw "$mount_point" || fail "remount,rw"
exec {file}<&-
touch "$mount_point/new"
unmount_device
mount_device ro
cmp /tmp/large "$mount_point/large"
unmount_device

check_device "at the end"
unload_modules
