#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Many requests at once: readahead and O_DIRECT on a device that is stopped, and what they transfer when it is not. Run by
# tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 100
load_device_mapper mod
load_modules
map_device "0 $((100 * 2048)) linear $device 0"
make_file_system
mount_device rw

say "a device that is stopped"
python3 "$repository/tests/uml/depth.py" "$mount_point/file" mapped || fail "see above"

say "behind the end that the file system knows"
python3 - "$mount_point/sparse" <<'END' || fail "see above"
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"end", 10 << 20)
direct = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
memory = mmap.mmap(-1, 1 << 20)
memory[:] = b"x" * len(memory)
assert os.preadv(direct, [memory], 0) == len(memory)
assert memory[:] == bytes(len(memory))
assert os.pread(direct, 10, (10 << 20) - 5) == b"\0\0\0\0\0end"
END

for engine in libaio io_uring sync; do
    say "fio by $engine"
    fio --name="$engine" --filename="$mount_point/fio-$engine" --size=16M --direct=1 --ioengine="$engine" --iodepth=16 \
        --rw=randrw --bsrange=4k-256k --verify=crc32c --verify_fatal=1 --thread --output=/tmp/fio --eta=never --fallocate=none ||
        fail "fio: $(</tmp/fio)"
    rm "$mount_point/fio-$engine"
done
unmount_device
check_device "at the end"
unmap_device
unload_modules
