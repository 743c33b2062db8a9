#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Calls that must not wait (RWF_NOWAIT), and io_uring, which makes them first. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 100
load_modules
make_file_system
mount_device rw

say "RWF_NOWAIT"
python3 "$repository/tests/uml/nowait.py" "$mount_point" || fail "see above"

# uring_workers OPTION...: how many threads the kernel has made, while fio ran, to do what would wait.
uring_workers() {
    local most=0 now
    fio --name=uring --filename="$mount_point/uring" --size=16M --ioengine=io_uring --iodepth=8 --bs=16k --time_based \
        --runtime=4 --output=/tmp/fio --eta=never --fallocate=none --invalidate=0 "$@" &
    while kill -0 $! 2>/dev/null; do
        now=$(cat /proc/[0-9]*/task/*/comm 2>/dev/null | grep -c '^iou-wrk-' || true)
        most=$((now > most ? now : most))
        sleep 0.1
    done
    wait $! || fail "fio: $(</tmp/fio)"
    echo "$most"
}
say "io_uring"
head -c 16M /dev/urandom >"$mount_point/uring"
cat "$mount_point/uring" >/dev/null
count=$(uring_workers --rw=randread)
[[ $count -eq 0 ]] || fail "reads of the page cache were made by $count other threads"
count=$(uring_workers --rw=randwrite)
[[ $count -gt 0 ]] || fail "no other thread has made writes: this test would see none"

say "io_uring, from the device"
for step in "write --do_verify=0" "read"; do
    # shellcheck disable=SC2086
    fio --name=verify --filename="$mount_point/verify" --size=16M --ioengine=io_uring --iodepth=8 --bs=16k --verify=crc32c \
        --verify_fatal=1 --output=/tmp/fio --eta=never --fallocate=none --rw=$step || fail "fio: $(</tmp/fio)"
    drop_caches
done

unmount_device
check_device "at the end"
unload_modules
