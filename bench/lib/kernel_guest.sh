#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What bench/kernel runs inside user-mode Linux, by tests/uml/run: a disk in memory, the modules, and kernel_guest.py, whose
# arguments these are.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$repository/tests/uml/lib/guest.sh"
make_device "$1"
load_modules
[[ -e /dev/fuse ]] || insmod "$kernel_modules/fs/fuse/fuse.ko"
insmod "$modules/tiffin_hello.ko"
insmod "$modules/tiffin_empty.ko"
export device mount_point
python3 "$repository/bench/lib/kernel_guest.py" "$@"
rmmod tiffin_hello tiffin_empty
unload_modules
