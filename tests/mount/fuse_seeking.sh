#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# SEEK_DATA and SEEK_HOLE see what only the kernel has, and leave in its cache what is data anyway.
# shellcheck disable=SC2119  # the options of mount_it are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

mount_it
protocol=$("$tiffin" status "$mount_point" | sed -n 's/^FUSE protocol: 7\.//p')
if [[ $protocol -lt 44 ]]; then
    echo "Linux $(uname -r) says of a page that it is written before it is: all of a file is data"
    truncate -s 1M "$mount_point/file"
    python3 - "$mount_point/file" <<'END' || fail "a hole was said that may be data under way"
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
assert os.lseek(file, 4096, os.SEEK_DATA) == 4096
assert os.lseek(file, 4096, os.SEEK_HOLE) == 1 << 20
END
    unmount_it
    echo "passed"
    exit 0
fi
python3 - "$mount_point/file" <<'END' || fail "seeking"
import os, sys

path = sys.argv[1]
mib = 1 << 20
file = os.open(path, os.O_CREAT | os.O_RDWR)

def seek(offset, whence):
    try:
        return os.lseek(file, offset, whence)
    except OSError as error:
        return error.errno

def expect(what, offset, whence, wanted):
    found = seek(offset, whence)
    assert found == wanted, f"{what}: from {offset} found {found}, expected {wanted}"

# Nothing of this has reached the file system when it is looked for.
os.pwrite(file, b"x" * mib, 0)
expect("appended", 0, os.SEEK_HOLE, mib)
os.pwrite(file, b"x" * 4096, 4 * mib)
expect("behind a hole", mib, os.SEEK_DATA, 4 * mib)
expect("behind a hole", 0, os.SEEK_HOLE, mib)
os.pwrite(file, b"x" * 4096, 2 * mib)
expect("in a hole", mib, os.SEEK_DATA, 2 * mib)
os.pwrite(file, b"x" * mib, mib)
expect("a hole filled", 0, os.SEEK_HOLE, 2 * mib + 4096)
for number in range(16):
    os.ftruncate(file, 0)
    os.ftruncate(file, 16 * mib)
    for even in range(0, 16, 2):
        os.pwrite(file, b"x" * 65536, even * 65536)
    os.fsync(file)
    for odd in range(1, 2 * number, 2):
        os.pwrite(file, b"x" * 65536, odd * 65536)
    # The even parts and the odd ones between them, up to the first that is left out.
    expect(f"{number} holes filled", 0, os.SEEK_HOLE, 65536 * min(2 * number + 1, 16))
os.ftruncate(file, 0)
for part in range(16):
    os.pwrite(file, b"x" * mib, part * mib)
os.fsync(file)
END
python3 - "$mount_point/file" <<'END' || fail "seeking"
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
size = os.fstat(file).st_size
for offset in range(0, size, 65536):
    assert os.lseek(file, offset, os.SEEK_DATA) == offset
    assert os.lseek(file, offset, os.SEEK_HOLE) == size
END
# Not all of it: a kernel that looks for cold memory (DAMON) takes a page here and there at any time.
cached_bytes=$(fincore --bytes --noheadings --output RES "$mount_point/file")
[[ $cached_bytes -ge $((8 << 20)) ]] || fail "seeking has dropped the cache: $cached_bytes bytes of 16 MiB are left"
unmount_it
echo "passed"
