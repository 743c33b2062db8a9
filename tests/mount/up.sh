#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# scripts/up, and what it tells people to do next.
#
# usage: up.sh
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
if [[ ! $bin -ef $repository/build/release/bin ]]; then
    echo "not run: scripts/up mounts with build/release/bin, and this tests $bin"
    exit 77
fi
up=$repository/scripts/up

# refuses TEXT ARGUMENT...: before anything is built, in one line.
refuses() {
    local text=$1 output
    shift
    ! output=$("$up" "$@" 2>&1) || fail "succeeded: up $*"
    [[ $(wc -l <<<"$output") -eq 1 && $output == *"$text"* ]] ||
        fail "up $* said '$output', expected one line with '$text'"
}

say "wrong arguments"
touch "$work/file"
refuses "unknown option" --dwon
refuses "more than one mount point" "$mount_point" "$work/other"
refuses "the mount point is empty" ""
refuses "is not a directory" "$work/file"
refuses "nothing is mounted" --down "$mount_point"
refuses "of type proc" /proc
refuses "not Tiffin's" --down /proc
[[ ! -e $work/other ]] || fail "a directory was made"

say "up, on a directory that is not there"
mount_point=$work/new/mnt
"$up" "$mount_point" >"$work/up" 2>&1 || fail "up: $(<"$work/up")"
is_mounted || fail "nothing is mounted"
[[ $(df --output=source "$mount_point" | tail -n 1) == mem:1G ]] || fail "not mem:1G"
refuses "has a mount already (mem:1G)" "$mount_point"

say "what it tells people to do"
# All lines that are indented, but for the last, which mounts again.
mapfile -t commands < <(sed -n "s/^    //p" "$work/up")
[[ ${#commands[@]} -ge 6 ]] || fail "few commands in: $(<"$work/up")"
cd /
image=$work/tiffin.img
for command in "${commands[@]}"; do
    command=${command//tiffin.img/$image}
    case $command in
        *"scripts/up --down"*) "$up" --down "$mount_point" >/dev/null || fail "up --down" ;;
        *) eval "$command" >"$work/command" 2>&1 || fail "'$command': $(<"$work/command")" ;;
    esac
done
cd /
is_mounted || fail "the image is not mounted"
[[ $(df --output=source "$mount_point" | tail -n 1) == "$image" ]] || fail "not the image"

say "down"
cd "$mount_point"
! "$up" --down "$mount_point" >"$work/down" 2>&1 || fail "unmounted under a user"
grep -q "is in use" "$work/down" || fail "up --down said: $(<"$work/down")"
cd /
"$up" --down "$mount_point" >/dev/null || fail "up --down"
! is_mounted || fail "still mounted"
device=$image
check_device "after up --down"

# What `up` has made for the server of the mount.
server_folder() { df --output=source "$mount_point" | sed -n 's/.*key_file=\(.*\)\/up\.key&.*/\1/p'; }
say "up --remote, and down: its server ends"
"$up" --remote "$mount_point" >"$work/up" 2>&1 || fail "up --remote: $(<"$work/up")"
folder=$(server_folder)
[[ -d $folder ]] || fail "no folder of the server's: $(df --output=source "$mount_point" | tail -n 1)"
server=$(<"$folder/pid")
[[ $(ps -o args= -p "$server") == *"$folder/tiffind.toml"* ]] || fail "process $server is not the server"
echo content >"$mount_point/file"
"$up" --down "$mount_point" >/dev/null || fail "up --down"
! is_mounted || fail "still mounted"
[[ ! -e $folder ]] || fail "$folder is left"
[[ ! -e /proc/$server ]] || fail "the server, process $server, is left"

say "up --remote, and down after its process has died"
"$up" --remote "$mount_point" >"$work/up" 2>&1 || fail "up --remote: $(<"$work/up")"
folder=$(server_folder)
server=$(<"$folder/pid")
kill -KILL "$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')"
"$up" --down "$mount_point" >"$work/down" 2>&1 || fail "up --down: $(<"$work/down")"
! is_mounted || fail "still mounted"
[[ ! -e $folder ]] || fail "$folder is left"
[[ ! -e /proc/$server ]] || fail "the server, process $server, is left"
echo "passed"
