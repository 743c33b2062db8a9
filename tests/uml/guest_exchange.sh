#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The kernel's half of tests/uml/exchange: mounts its disk, compares what is there with what FUSE has written, and writes
# for FUSE. Run by tests/uml/run.
#
# usage: guest_exchange.sh FROM_FUSE FOR_FUSE     (trees on the host: what was copied, what is to be)
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
device=/dev/ubda
load_modules
mount_device rw
rsync -naxc --hard-links --delete --out-format='%i %n' "$1/" "$mount_point/from_fuse/" >/tmp/diff
[[ ! -s /tmp/diff ]] || fail "attributes of what FUSE has written: $(head -n 5 /tmp/diff)"
(cd "$mount_point/from_fuse" && getfattr -dm - -- attributes) | diff - "$1.attributes" || fail "extended attributes"
getfacl -cp "$mount_point/from_fuse/attributes" | diff - "$1.acl" || fail "ACL"
cp -a "$2" "$mount_point/from_kernel"
setfattr -n user.from -v kernel "$mount_point/from_kernel/attributes"
setfacl -m u:1234:r "$mount_point/from_kernel/attributes"
rm -r "$mount_point/from_fuse"
unmount_device
check_device "after the kernel"
unload_modules
