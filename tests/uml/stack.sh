#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Stacks while memory is reclaimed, on a device of two layers of device mapper: several programs at once, and stores to mappings of
# files larger than the memory of their control group, which is also to say that such a group comes to an end with all that it has
# stored. fsstress of the upstream suite takes part where that is built. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
# The suite lies beside the kernel; the home here is another one.
XDG_CACHE_HOME=${kernel_modules%/tiffin/kernel*}
# shellcheck source=scripts/lib/xfstests.sh
source "$repository/scripts/lib/xfstests.sh"
most_bytes=$((12 * 1024))
parameters=/sys/module/tiffin_vfs/parameters
make_device 300
insmod "$kernel_modules/drivers/md/dm-mod.ko"
sectors=$((300 * 1024 * 2))
for layer in lower upper; do
    DM_DISABLE_UDEV=1 dmsetup create "$layer" --table "0 $sectors linear $device 0"
    DM_DISABLE_UDEV=1 dmsetup mknodes
    device=/dev/mapper/$layer
done
load_modules
make_file_system
mount_device rw,dev,suid
echo 1 >$parameters/measure_stack

group=/sys/fs/cgroup/small
mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null || true
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir $group
echo 16M >$group/memory.max

say "stores to mappings in a small control group"
echo $BASHPID >/sys/fs/cgroup/cgroup.procs
(
    echo $BASHPID >$group/cgroup.procs
    exec "$repository/tests/uml/mapped_stores.py" write "$mount_point/mapped" 64
) &
stores=$!

say "several programs"
while sleep 1; do drop_caches; done &
dropper=$!
python3 "$repository/tests/mount/parallel_use.py" "$mount_point" /tmp/record --programs 3 --seed 1 --operations 100 || fail "see above"
if suite=$(xfstests_folder); then
    say "fsstress"
    mkdir "$mount_point/stress"
    "$suite/ltp/fsstress" -p 4 -n 300 -s 1 -d "$mount_point/stress" >/tmp/fsstress || fail "fsstress: $(tail /tmp/fsstress)"
fi
wait "$stores" || fail "the program in the control group ended with $?"
kill "$dropper"
wait "$dropper" || true
[[ $(awk '$1 == "max" { print $2 }' $group/memory.events) -gt 0 ]] || fail "memory was not short in the control group"
drop_caches
"$repository/tests/uml/mapped_stores.py" verify "$mount_point/mapped" 64 || fail "see above"

deepest=$(<$parameters/deepest_stack)
say "the deepest stack: $deepest bytes"
[[ $deepest -gt 1000 ]] || fail "nothing was measured"
[[ $deepest -le $most_bytes ]] || fail "more than $most_bytes bytes of stack"
unmount_device
check_device "at the end"
unload_modules
say "done"
