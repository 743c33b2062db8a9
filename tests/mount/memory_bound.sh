#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The daemon's memory while the kernel remembers 50,000 files: bounded by cache=SIZE, by the objects that it
# caches, and by a few bytes for each file. bench/scale measures the same with a million.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"

[[ $# -eq 1 ]] || { echo "usage: memory_bound.sh DEVICE" >&2; exit 2; }
need_programs python3 find
readonly files=50000 cache_mib=16
# What does not depend on the number of files: the program itself, its threads' buffers of some MiB each, and
# 65,536 cached objects.
readonly fixed_kib=$((56 * 1024))
# A reference takes 24 bytes; the allocator's own share and the steps in which tables grow come on top.
readonly bytes_for_a_file=64

memory_kib() { awk -v key="$1:" '$1 == key { print $2 }' "/proc/$server/status"; }
referenced() { "$bin/tiffin" status "$mount_point" | sed -n 's/^nodes referenced: //p'; }
few_are_referenced() { (($(referenced) < files / 100)); }

use_device "$1" 4G
say "creating $files files"
mount_device "cache=${cache_mib}M"
python3 - "$mount_point" "$files" <<'END'
import os, sys
os.chdir(sys.argv[1])
for directory in range(int(sys.argv[2]) // 1000):
    os.mkdir(f"d{directory}")
    for number in range(1000):
        os.mknod(f"d{directory}/file-{number}")
END
unmount_device

mount_device "cache=${cache_mib}M"
before=$(memory_kib VmRSS)
say "looking at all of them; the daemon has $before KiB"
[[ $(find "$mount_point" -type f -size 0 -ls | wc -l) -eq $files ]] || fail "files are missing"
(($(referenced) >= files)) || fail "the kernel does not remember them: $(referenced) nodes"
peak=$(memory_kib VmHWM)
bound=$((fixed_kib + cache_mib * 1024 * 5 / 4 + files * bytes_for_a_file / 1024))
say "at most $peak KiB, bound $bound KiB"
((peak <= bound)) || fail "the daemon took $peak KiB, more than $bound KiB"

if [[ $(id -u) -eq 0 ]]; then
    say "the kernel forgets"
    echo 2 >/proc/sys/vm/drop_caches
    wait_until few_are_referenced
fi
unmount_device
check_device "after all"
echo "passed"
