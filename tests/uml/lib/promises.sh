# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Whether room that was promised to pages comes back: of pages that are dropped, written, truncated, mapped, or in small files.
# shellcheck shell=bash disable=SC2154

free_blocks() { stat -f -c %f "$mount_point"; }

# check_promises: on a file system that is mounted; mounts it anew. Fails, and says how many, when blocks are missing.
check_promises() {
    local before
    sync
    unmount_device
    mount_device rw
    before=$(free_blocks)
    python3 - "$mount_point" <<'END' || return 1
import mmap, os, sys
folder = sys.argv[1]
MIB = 1 << 20
for round in range(20):
    name = folder + "/promised"
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(file, bytes([round + 1]) * (8 * MIB))
    if round % 2 == 0:
        os.fsync(file)
    os.pwrite(file, b"again" * 100000, 12345)         # over dirty and clean pages
    os.ftruncate(file, 3 * MIB + 17)                  # drops dirty pages
    os.ftruncate(file, 8 * MIB)
    with mmap.mmap(file, 8 * MIB) as mapped:
        for i in range(0, 8 * MIB, 8192):
            mapped[i] = 255
    os.posix_fallocate(file, 8 * MIB, MIB)
    os.pwrite(file, bytes(MIB), 8 * MIB)              # over blocks that it has
    try:
        os.pwrite(file, memoryview(bytes(4096)), -1)
    except OSError:
        pass
    os.close(file)
    os.unlink(name)                                   # with dirty pages
    small = os.open(folder + "/small", os.O_RDWR | os.O_CREAT)
    os.write(small, b"x" * 100)                       # no blocks, then some
    os.write(small, b"y" * 5000)
    os.close(small)
    os.unlink(folder + "/small")
END
    sync
    for _ in $(seq 100); do
        sync -f "$mount_point"
        [[ $(free_blocks) -lt $((before - 64)) ]] || break
        sleep 0.1
    done
    # The tree may have some nodes more.
    [[ $(free_blocks) -lt $((before - 64)) ]] || return 0
    echo "$((before - $(free_blocks))) blocks are missing"
    return 1
}
