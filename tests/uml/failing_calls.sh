#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# One call of the file system fails, of each operation that can fail, the first, second, or fifth (of get_attributes many): the
# caller is told, what has succeeded is there, each inode in memory agrees with the file system, and no reference is left. Run by
# tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
# A device that discards.
insmod "$kernel_modules/drivers/block/loop.ko"
truncate -s 64M /tmp/disk
device=$(losetup --find --show /tmp/disk)
load_modules
make_file_system
python3 "$repository/tests/uml/failing_calls.py" "$device" "$mount_point" "$bin" "$@" || fail "see above"
unload_modules
say "done"
