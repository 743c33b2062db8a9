#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A file system outside of the sources (docs/examples/file_system) builds with nothing but what is installed, and mounts.
#
# usage: development.sh BUILD_FOLDER
#
# Exit status 77: not run.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
fail() { echo "FAILED: $*" >&2; exit 1; }

[[ $# -eq 1 ]] || fail "usage: development.sh BUILD_FOLDER"
[[ -c /dev/fuse ]] || { echo "NOT RUN: /dev/fuse is missing"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/tiffin-test.XXXXXX")
clean_up() {
    umount "$work/mnt" 2>/dev/null || fusermount3 -u "$work/mnt" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

cmake --install "$1" --component development --prefix "$work/installed" >/dev/null
cp -r "$repository/docs/examples/file_system" "$work/example"
cd "$work/example"
PKG_CONFIG_PATH=$(echo "$work"/installed/lib*/pkgconfig) make
mkdir "$work/mnt"
./mount.squares "$work/mnt"
[[ $(<"$work/mnt/12") == 144 ]] || fail "file 12 has '$(<"$work/mnt/12")'"
[[ $(find "$work/mnt" -type f | wc -l) -eq 1000 ]] || fail "there are not 1000 files"
for absent in 1000 012 x; do
    [[ ! -e $work/mnt/$absent ]] || fail "$absent exists"
done
if message=$(LC_ALL=C touch "$work/mnt/12" 2>&1) || [[ $message != *"Read-only file system"* ]]; then
    fail "changing a file: '$message'"
fi
