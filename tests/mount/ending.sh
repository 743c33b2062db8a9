#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# SIGTERM ends the mount of the process that gets it, and no other: nothing that was written is lost when
# somebody else has unmounted first, and what is mounted in the same place since then stays.
#
# usage: ending.sh
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $(id -u) -eq 0 ]] || { echo "not run: umount and mount --bind take root" && exit 77; }
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs unshare nsenter python3

use_device "file:$work/image" 64M
content=$(head -c 100000 /dev/zero | tr '\0' x)
holder=""
trap 'status=$?; [[ -z $holder ]] || kill "$holder" 2>/dev/null || true; exec 9>&-; clean_up $status' EXIT

# Each test looks for what is said from here on.
forget_log() { : >"$log"; }
log_says() { grep -q "$1" "$log"; }
# expect_content FILE WHEN: mounts, reads and unmounts.
expect_content() {
    mount_device
    [[ $(<"$mount_point/$1") == "$content" ]] || fail "what was written is lost, $2"
    unmount_device
    check_device "$2"
}

say "detached while a file is in use"
mount_device
exec 9>"$mount_point/detached"
printf %s "$content" >&9
umount -l "$mount_point"
forget_log
kill "$server"
wait_until log_says "not mounted"
! has_ended "$server" || fail "the process has ended while its file system was in use"
forget_log
kill "$server"
wait_until log_says "not mounted"
exec 9>&-
wait_until has_ended "$server"
expect_content detached "after umount -l and SIGTERM"

say "while umount writes back"
mount_device
printf %s "$content" >"$mount_point/flushed"
kill -STOP "$server"
# Not umount(8), which asks the file system first.
python3 -c 'import ctypes, sys; sys.exit(ctypes.CDLL(None).umount2(sys.argv[1].encode(), 0))' "$mount_point" &
unmounting=$!
wait_until eval '! is_mounted'
kill "$server"
kill -CONT "$server"
wait "$unmounting" || fail "umount ended with $?"
wait_until has_ended "$server"
expect_content flushed "after umount and SIGTERM"

say "another file system in the same place"
mount_device
exec 9>"$mount_point/first"
printf %s "$content" >&9
umount -l "$mount_point"
first=$server
truncate -s 64M "$work/second"
"$bin/mkfs.tiffin" -q "$work/second"
"$bin/mount.tiffin" "$work/second" "$mount_point"
server=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
echo second >"$mount_point/file"
forget_log
kill "$first"
wait_until log_says "not mounted"
[[ $(<"$mount_point/file") == second ]] || fail "SIGTERM has unmounted somebody else's file system"
exec 9>&-
wait_until has_ended "$first"
[[ $(<"$mount_point/file") == second ]] || fail "the end has unmounted somebody else's file system"
unmount_device
expect_content first "after another file system was mounted"

say "another file system mounted over it"
mount_device
printf %s "$content" >"$mount_point/covered"
mount -t tmpfs none "$mount_point"
forget_log
kill "$server"
wait_until log_says "another file system is mounted over"
[[ $(stat --file-system --format %T "$mount_point") == tmpfs ]] ||
    fail "SIGTERM has unmounted what was mounted over the file system"
umount "$mount_point"
[[ $(<"$mount_point/covered") == "$content" ]] || fail "the file system that was covered is gone"
kill "$server"
wait_until has_ended "$server"
! is_mounted || fail "the second SIGTERM has left the mount behind"
expect_content covered "after it was covered"

say "mounted in two places"
mount_device
mkdir "$mount_point/folder" "$work/bound"
printf %s "$content" >"$mount_point/bound"
mount --bind "$mount_point/folder" "$work/bound"
kill "$server"
wait_until has_ended "$server"
! is_mounted || fail "SIGTERM has left the mount behind"
! grep -qF " $work/bound " /proc/self/mounts || fail "SIGTERM has left a bind mount behind"
expect_content bound "after it was mounted in two places"

say "in use in another mount name space"
mount_device
mkfifo "$work/ready" "$work/go"
"$repository/tests/support/own_mounts" --keep "$work" -- sh -c "echo > '$work/ready'; exec cat '$work/go' >/dev/null" &
holder=$!
read -r <"$work/ready"
printf %s "$content" >"$mount_point/elsewhere"
kill "$server"
wait_until eval '! is_mounted'
forget_log
kill "$server"
wait_until log_says "not mounted"
nsenter --mount --target "$holder" cat "$mount_point/elsewhere" >"$work/seen" || true
[[ $(<"$work/seen") == "$content" ]] || fail "SIGTERM took the file system from another name space"
echo >"$work/go"
wait "$holder"
holder=""
wait_until has_ended "$server"
expect_content elsewhere "after another name space had it"

say "in use"
mount_device
exec 9>"$mount_point/used"
printf %s "$content" >&9
forget_log
kill "$server"
wait_until has_ended "$server"
log_says "the mount is in use" || fail "the log does not say that files were open"
exec 9>&- || true
! is_mounted || fail "SIGTERM with an open file left the mount behind"
expect_content used "after SIGTERM with an open file"
server=""

say "a name that the table of mounts writes otherwise"
unusual=$work/$'blank tab\t newline\n \\ (deleted)'
mkdir "$unusual"
"$bin/mount.tiffin" mem:64M "$unusual"
server=$("$bin/tiffin" status "$unusual" | sed -n 's/^process: //p')
kill "$server"
wait_until has_ended "$server"
rmdir "$unusual" || fail "SIGTERM left the mount behind"
server=""
echo "passed"
