#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A file system on a volume of tiffind, whose serving process is killed with -9 while files are written, again
# and again: the keeper has the memory, sessions resume, and nobody notices but by a delay.
#
# usage: kill_and_resume.sh [ROUNDS]
set -euo pipefail
rounds=${1:-4}
# shellcheck source=tests/remote/lib/tiffind.sh
source "$(dirname "$0")/lib/tiffind.sh"

nobody_has_the_lease() { "$bin/tiffin" volume info files "${admin[@]}" | grep -q '^writer: *nobody'; }

start_server
create_volume files 256M
"$bin/mkfs.tiffin" -q "$address"
"$bin/mount.tiffin" "$address" "$mount_point"

# Writes until it is told to stop; each file's checksum is noted before and compared in the end.
write_files() {
    local number=0
    until [[ -e $work/stop ]]; do
        head -c $((RANDOM * 20)) /dev/urandom >"$work/source"
        cp "$work/source" "$mount_point/file-$((number % 40))"
        sync "$mount_point/file-$((number % 40))"
        sed -i "/  file-$((number % 40))\$/d" "$work/sums"
        echo "$(sha256sum <"$work/source" | cut -d' ' -f1)  file-$((number % 40))" >>"$work/sums"
        number=$((number + 1))
    done
    echo "$number" >"$work/written"
}
touch "$work/sums"
write_files &
writer=$!
for ((round = 0; round < rounds; round++)); do
    sleep 0.5
    kill_worker
done
sleep 0.5
touch "$work/stop"
wait "$writer" || fail "the writer saw an error"
(cd "$mount_point" && sha256sum --check --quiet "$work/sums") || fail "content differs"
resumed=$(grep -c 'memory kept' "$work/log")
[[ $resumed -eq $rounds ]] || fail "$resumed of $rounds starts found the memory"
fusermount3 -u "$mount_point"
wait_until nobody_has_the_lease
"$bin/fsck.tiffin" -n "$address" || fail "the file system is damaged"
say "$(cat "$work/written") files written, $rounds times killed"
