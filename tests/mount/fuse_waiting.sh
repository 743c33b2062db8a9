#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A request that waits for long holds up no other, also when it comes amid requests that follow each other
# closely, for which a single thread is kept awake and the others are kept away.
# shellcheck disable=SC2119  # the options of mount_it are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

mount_it --fs patient
# Each fsync waits for a directory of its own: without other requests being answered this ends never.
timeout 120 python3 - "$mount_point" <<'END' || fail "requests wait for one that waits"
import os, sys, threading

root = sys.argv[1]
made = 0
for waiting in (1, 1, 1, 1, 1, 1, 1, 1, 2, 5, 9):
    files = [os.open(f"{root}/file{i}", os.O_CREAT | os.O_RDWR) for i in range(waiting)]
    for _ in range(2000):
        os.statvfs(root)
    threads = [threading.Thread(target=os.fsync, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
        for _ in range(200):
            os.statvfs(root)
    assert all(thread.is_alive() for thread in threads), "an fsync has not waited"
    for thread in threads:
        os.mkdir(f"{root}/{made}")
        made += 1
    for thread in threads:
        thread.join()
    for file in files:
        os.close(file)
END
unmount_it
echo "passed"
