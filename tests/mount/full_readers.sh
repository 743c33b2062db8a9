#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A file of single blocks is read on a full volume, each request in hundreds of pieces, while others overwrite it and
# look for room: nobody waits for ever, and what is read is what was written.
#
# usage: full_readers.sh file:PATH [SECONDS [SEED]]             (what PATH holds is lost)
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") file:PATH [SECONDS [SEED]]" >&2; exit 2; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs python3
use_device "$1" 64M
mount_device
python3 "$(dirname "$0")/full_readers.py" "$mount_point" "${2:-8}" "${3:-1}" || fail "seed ${3:-1}"
unmount_device
check_device "after readers and writers on a full volume"
echo "passed"
