#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A file system on a volume of tiffind, whose serving process is killed with -9 while files are written, again
# and again: the keeper has the memory, sessions resume, and nobody notices but by a delay.
#
# usage: kill_and_resume.sh [tcp|shm|sdr] [ROUNDS]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
rounds=${2:-4}
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

start_server
use_device "$(make_volume files 256M)"
mount_device

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
resumed=$(grep -c 'memory kept' "$server_log")
[[ $resumed -eq $rounds ]] || fail "$resumed of $rounds starts found the memory"
unmount_device
check_device "after $rounds kills"
echo "passed: $(<"$work/written") files written, $rounds times killed"
