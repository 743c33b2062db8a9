#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The file-system suite (tests/suite) with real system calls on a mount of the module. Run by tests/uml/run.
# usage: suite.sh [ARGUMENT...]     (to suite_run_mount)
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
make_device 300
load_modules
make_file_system
mount_device rw
"$bin/../tests/mount/suite_run_mount" "$mount_point" "$@" | tee /tmp/suite | grep -v "^passed" || {
    fail "the suite"
}
unmount_device
check_device "the suite"
unload_modules
