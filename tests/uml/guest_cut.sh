#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The kernel's half of the part of tests/uml/exchange in which nobody unmounts. Run by tests/uml/run; the machine goes off
# with the volume mounted and written to.
#
# usage: guest_cut.sh FROM_FUSE FOR_FUSE     (trees on the host: what FUSE has made durable, what is to be made so)
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
device=/dev/ubda
load_modules
mount_device rw
diff -r --no-dereference -x fifo "$1" "$mount_point/cut_under_fuse" || fail "what FUSE has made durable"
cp -a "$2" "$mount_point/cut_in_kernel"
sync -f "$mount_point"
# And what is not durable, but must do no harm.
for number in $(seq 200); do
    head -c $((number * 500)) /dev/zero >"$mount_point/late-$number"
    [[ $number -lt 100 ]] || mv "$mount_point/late-$number" "$mount_point/cut_under_fuse/"
done
rm "$mount_point/cut_under_fuse/large"
