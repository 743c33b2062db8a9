#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The volume as the upper layer of a union mount (overlayfs), as containers use one: names that are removed or moved leave
# whiteouts in it (RENAME_WHITEOUT), and directories that replace others are opaque (trusted.overlay).
#
# usage: union_mount.sh DEVICE_ADDRESS        (file:PATH; what PATH holds is lost)
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $# -eq 1 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS" >&2; exit 2; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
[[ $(id -u) -eq 0 ]] || fail "it mounts an overlay: run it as root"
if ! grep -qw overlay /proc/filesystems && ! modprobe overlay 2>/dev/null; then
    echo "this kernel has no overlayfs"
    exit 77
fi

use_device "$1" 256M
mount_device
lower=$work/lower
union=$work/union
mkdir -p "$lower/d/e" "$union" "$mount_point/upper" "$mount_point/work"
for name in a b d/f d/e/g; do echo "lower $name" >"$lower/$name"; done
mount_union() {
    mount -t overlay overlay -o "lowerdir=$lower,upperdir=$mount_point/upper,workdir=$mount_point/work" "$union"
}
mount_union

mv "$union/a" "$union/moved"
rm "$union/b"
echo "upper" >"$union/d/f"
mv "$union/d/f" "$union/d/e/g"
mkdir "$union/new"
mv "$union/moved" "$union/new/"
rm -r "$union/d/e"
mkdir "$union/d/e"
seen() { (cd "$union" && find . -type f -exec grep -H . {} + | sort); }
expected="./new/moved:lower a"
[[ $(seen) == "$expected" ]] || fail "the union has: $(seen)"
for name in a b d/f; do
    [[ $(stat -c '%F %t %T' "$mount_point/upper/$name") == "character special file 0 0" ]] ||
        fail "no whiteout: upper/$name"
done
umount "$union"
unmount_device
check_device "after the union"
mount_device
mount_union
[[ $(seen) == "$expected" ]] || fail "after mounting again the union has: $(seen)"
umount "$union"
unmount_device
! grep -E ' (warning|error): ' "$log" || fail "the log has complaints"
echo "passed"
