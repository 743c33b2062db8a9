#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The single system calls of tests/conformance on a mount of the module and on ext4, both in the same kernel. Run by tests/uml/run.
#
# What may differ and why is in tests/conformance/known_differences_kernel.txt, which is for Linux 6.1. With groups that list
# is not applied.
#
# usage: conformance.sh [GROUP]...        (all groups need --memory 3000 --time 1200)
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
conformance=$bin/../tests/mount/conformance
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=2 rd_size=900000
load_modules
make_file_system
mount_device dev,suid
mkdir /tmp/ext4
# The order of names there depends on the seed.
mkfs.ext4 -q -F -b 4096 -N 300000 -E hash_seed=6d0f4c1e-52f5-4b8c-9a53-0a6c4ef3b1d2,lazy_itable_init=0,lazy_journal_init=0 /dev/ram1
mount -t ext4 /dev/ram1 /tmp/ext4

# try_all NAME DIRECTORY [GROUP]...
try_all() {
    local name=$1 directory=$2
    shift 2
    mkdir "$directory/trials"
    setsid "$conformance" --read-only "mount -o remount,ro $directory" "$directory/trials" "$@" >"/tmp/$name.txt" \
        2>"/tmp/$name.errors" || fail "$name: $(tail -n 3 "/tmp/$name.errors")"
    say "$name: $(wc -l <"/tmp/$name.txt") trials"
}
try_all ext4 /tmp/ext4 "$@"
try_all tiffin "$mount_point" "$@"
known=()
[[ $# -gt 0 ]] || known=(--known "$repository/tests/conformance/known_differences_kernel.txt")
python3 "$repository/tests/conformance/compare.py" "${known[@]}" /tmp/tiffin.txt /tmp/ext4.txt ||
    fail "see above"
umount "$mount_point"
check_device "conformance"
umount /tmp/ext4
unload_modules
