#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Several programs at once with all kinds of calls, and what few programs do (tests/mount), on a mount of the module. Run by
# tests/uml/run.
#
# usage: parallel.sh [OPERATIONS [SEED]]
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
operations=${1:-150}
seed=${2:-1}
make_device 300
load_modules
make_file_system
mount_device rw,dev,suid

say "parallel use, seed $seed"
# Meanwhile, pages and inodes leave memory.
while sleep 1; do drop_caches; done &
dropper=$!
python3 "$repository/tests/mount/parallel_use.py" "$mount_point" /tmp/record --programs 4 --seed "$seed" \
    --operations "$operations" || fail "see above"
kill "$dropper"
wait "$dropper" || true
remount "parallel use"
python3 "$repository/tests/mount/parallel_use.py" "$mount_point" /tmp/record --verify || fail "after the remount: see above"
find "$mount_point" -mindepth 1 -delete

say "unusual use"
umount "$mount_point"
mount_device rw,dev,suid
python3 "$repository/tests/mount/unusual_use.py" "$mount_point" || fail "see above"
unmount_device
check_device "unusual use"
unload_modules
