#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The guest's half of tests/uml/xfstests: runs tests of the suite on its disks. Run by tests/uml/run.
#
# usage: guest_xfstests.sh TYPE SUITE SECONDS LIST     (LIST: a file with the names of tests)
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
# shellcheck source=xfstests/lib/results.sh
source "$repository/xfstests/lib/results.sh"
type=$1 suite=$2 limit_s=$3
mapfile -t tests <"$4"
export PATH=$bin:$PATH

# The suite's users; the host's files are not to change.
for file in passwd group; do
    cp "/etc/$file" "/tmp/$file"
    for number in 1 2 3; do
        name=$(sed -n "${number}p" <<<$'fsgqa\nfsgqa2\n123456-fsgqa')
        if [[ $file == passwd ]]; then
            echo "$name:*:$((60000 + number)):$((60000 + number))::/tmp:/bin/bash"
        else
            echo "$name:x:$((60000 + number)):"
        fi >>"/tmp/$file"
    done
    mount --bind "/tmp/$file" "/etc/$file"
done
# What the suite asks modprobe for is there before it asks. Kernels other than Debian's lack some.
for module in block/loop md/dm-mod md/dm-bufio md/dm-bio-prison md/persistent-data/dm-persistent-data md/dm-thin-pool \
    md/dm-flakey md/dm-log-writes md/dm-snapshot md/dm-zero md/dm-delay; do
    [[ ! -e $kernel_modules/drivers/$module.ko ]] || insmod "$kernel_modules/drivers/$module.ko"
done
# For tests with a server, generic/131.
ip link set lo up
# There is no udev, which dmsetup and the suite would wait for.
export DM_DISABLE_UDEV=1
mkdir /tmp/stubs
printf '#!/bin/sh\nexit 0\n' >/tmp/stubs/udevadm
chmod +x /tmp/stubs/udevadm
export PATH=/tmp/stubs:$PATH
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
mkdir /tmp/test /tmp/scratch /tmp/results
{
    echo "export FSTYP=$type TEST_DEV=/dev/ubda TEST_DIR=/tmp/test SCRATCH_DEV=/dev/ubdb SCRATCH_MNT=/tmp/scratch"
    echo "export LOGWRITES_DEV=/dev/ubdc RESULT_BASE=/tmp/results"
    [[ $type != tiffin ]] || echo "export MKFS_OPTIONS='-f -q' FSCK_OPTIONS='-n -f'"
} >/tmp/config
if [[ $type == tiffin ]]; then
    load_modules
    device=/dev/ubda
    make_file_system
else
    mkfs -t "$type" /dev/ubda >/tmp/mkfs 2>&1 || fail "mkfs: $(</tmp/mkfs)"
fi
# The console is for ./check.
dmesg -n 1
end_slow_tests "$limit_s" &
watchdog=$!
# A test that is not even ended by that hangs in the kernel: where, the console says.
while sleep 10; do
    age=$(($(date +%s) - $(stat -c %Y /tmp/results/generic/check_dmesg 2>/dev/null || date +%s)))
    if [[ $age -gt $((limit_s + 60)) ]]; then
        dmesg -n 8
        echo w >/proc/sysrq-trigger
        # Of those that wait where they can be interrupted, too.
        # shellcheck disable=SC2009
        ps -eo pid,stat,wchan:30,args | grep -v "\]$" || true
        echo o >/proc/sysrq-trigger
    fi
done &
last_watchdog=$!
cd "$suite"
# Some choose what they expect by a link beside them, which is not for the host either.
if grep -q _link_out_file "${tests[@]/#/tests/}"; then
    cp -r tests/generic /tmp/generic
    mount --bind /tmp/generic tests/generic
fi
HOST_OPTIONS=/tmp/config ./check "${tests[@]}" 2>&1 || true
kill "$watchdog" "$last_watchdog"
echo "check has ended"
if [[ $type == tiffin ]]; then
    umount /tmp/scratch /tmp/test 2>/dev/null || true
    check_device "the test device at the end"
    # Some tests leave no file system on the scratch device.
    device=/dev/ubdb
    if "$bin/tiffin" info "$device" >/dev/null 2>&1; then
        check_device "the scratch device at the end"
    fi
    unload_modules
fi
