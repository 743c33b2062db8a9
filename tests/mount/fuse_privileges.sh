#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A write takes set-group-id away, and nothing else: a mode that somebody gives the file at the same time stays.
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: it writes as another user, which takes root" && exit 0; }
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"
chmod 755 "$work"

mount_it --fs changing
file=$mount_point/file
: >"$file"
chmod 2666 "$file"
# The group may not execute, and the writer is not in it.
setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "echo content >>'$file'"
mode=$(stat --format %a "$file")
[[ $mode == 640 ]] || fail "the mode is $mode, expected that of the chmod, 640, without set-group-id"
unmount_it
echo "passed"
