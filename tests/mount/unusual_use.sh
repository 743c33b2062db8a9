#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What few programs do (unusual_use.py), and that nothing of it is left on the device afterwards.
#
# usage: unusual_use.sh DEVICE_ADDRESS        (file:PATH; what PATH holds is lost)
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS" >&2; exit 2; }
script=$(realpath "$(dirname "$0")")/unusual_use.py
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3
[[ $(id -u) -eq 0 ]] || fail "it makes device nodes and opens files by handle: run it as root"

use_device "$1" 512M
mount_device
python3 "$script" "$mount_point" || fail "see above"
all_is_deleted() { "$bin/tiffin" status "$mount_point" | grep -qx "nodes: 1"; }
wait_until all_is_deleted
unmount_device
check_device "at the end"
! grep -E ' (warning|error): ' "$log" || fail "the log has complaints"
echo "passed"
