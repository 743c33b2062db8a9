# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the scripts beside this folder share. A script is called as
#
#     fuse_NAME.sh MOUNT_PROGRAM TIFFIN
#
# with a mount program that needs no device (mount_memory) and the tiffin command; or with mount.tiffin, and the address of
# a device in TIFFIN_TEST_DEVICE. It works as root and as a user who may mount with fusermount3.
# shellcheck shell=bash

[[ $# -eq 2 ]] || { echo "usage: $(basename "$0") MOUNT_PROGRAM TIFFIN" >&2; exit 2; }
mount_program=$(realpath "$1")
tiffin=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/tiffin-test.XXXXXX")
mount_point=$work/mnt
mkdir "$mount_point"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# shellcheck source=tests/support/wait.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../support/wait.sh"

take_away() {
    if [[ $(id -u) -eq 0 ]]; then
        umount "$@" "$mount_point"
    else
        # shellcheck disable=SC2086
        fusermount3 -u ${1:+-z} "$mount_point"
    fi
}

# The process that serves the mount.
server() { "$tiffin" status "$mount_point" | sed -n 's/^process: //p'; }

is_unmounted() { ! is_mounted; }

clean_up() {
    while is_mounted; do
        take_away -l || break
    done
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# Mounts, with further arguments for the program; whatever is printed is a failure.
mount_it() {
    local output
    output=$("$mount_program" "${TIFFIN_TEST_DEVICE:-none}" "$mount_point" "$@" 2>&1) || fail "cannot mount: $output"
    [[ -z $output ]] || fail "the mount program said: $output"
    is_mounted || fail "the mount program returned 0 and nothing is mounted"
}

unmount_it() {
    local process
    process=$(server)
    take_away
    wait_until has_ended "$process"
}

# expect_failure TEXT COMMAND...: the command fails and says TEXT in its only line.
expect_failure() {
    local text=$1 output status=0
    shift
    output=$("$@" 2>&1) || status=$?
    [[ $status -ne 0 ]] || fail "succeeded: $*"
    [[ $(wc -l <<<"$output") -eq 1 ]] || fail "not one line from $*: $output"
    [[ $output == *"$text"* ]] || fail "$* said '$output', expected '$text'"
}
