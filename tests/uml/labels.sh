#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Labels of a security module (Smack): each kind of node has one from the beginning, the same as on ext4 in the same kernel, and
# keeps it. Run by tests/uml/run --parameter lsm=smack.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
mount -t smackfs smackfs /sys/fs/smackfs 2>/dev/null || fail "this kernel has no Smack, or not as its security module"
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=2 rd_size=100000
load_modules
make_file_system
mkfs.ext4 -q -F /dev/ram1
mkdir /tmp/ext4

mount_both() {
    mount_device rw
    mount -t ext4 /dev/ram1 /tmp/ext4
}
unmount_both() {
    unmount_device
    umount /tmp/ext4
}
# Two programs of other labels, one of which gives what it makes in a transmuting directory that directory's label.
echo "Maker Shared rwxat" >/sys/fs/smackfs/load2
echo "Maker _ rwxa" >/sys/fs/smackfs/load2
make_nodes() { python3 "$repository/tests/uml/labels.py" make "$1" || fail "see above"; }
show_labels() { python3 "$repository/tests/uml/labels.py" show "$1"; }

mount_both
for folder in "$mount_point" /tmp/ext4; do
    mkdir "$folder/shared"
    setfattr -n security.SMACK64 -v Shared "$folder/shared"
    setfattr -n security.SMACK64TRANSMUTE -v TRUE "$folder/shared"
    make_nodes "$folder"
done
say "labels"
show_labels /tmp/ext4 >/tmp/expected
grep -q "^made/file .*SMACK64=Maker" /tmp/expected || fail "ext4 has no labels: $(</tmp/expected)"
grep -q "^shared/directory .*SMACK64TRANSMUTE=TRUE" /tmp/expected || fail "nothing transmutes on ext4: $(</tmp/expected)"
show_labels "$mount_point" | diff /tmp/expected - >/tmp/diff || fail "labels differ from ext4's: $(</tmp/diff)"
say "labels of inodes that were read"
drop_caches
show_labels "$mount_point" | diff /tmp/expected - >/tmp/diff || fail "labels from the device: $(</tmp/diff)"
unmount_both
check_device "labels"
mount_both
show_labels "$mount_point" | diff /tmp/expected - >/tmp/diff || fail "labels after a remount: $(</tmp/diff)"

say "a full volume"
# What finds no room for its label is not there at all.
python3 "$repository/tests/uml/labels.py" fill "$mount_point" || fail "see above"
python3 "$repository/tests/uml/labels.py" show "$mount_point" >/tmp/labels
grep -q "^many/0 SMACK64=Maker$" /tmp/labels || fail "there was no room for anything"
! grep -v "SMACK64=" /tmp/labels || fail "these have no label"
rm -r "$mount_point/many"

unmount_both
check_device "a full volume"
unload_modules
