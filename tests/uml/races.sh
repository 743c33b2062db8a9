#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Between two steps of the module threads sleep, at one place after the other, so that others come in between: several programs
# write, map, truncate and move the parts of one file, others use names. What each wrote is there, nothing else is seen, each
# inode in memory agrees with the file system, and the device with the page cache. Run by tests/uml/run.
#
# usage: races.sh [SEED [PLACE...]]
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
seed=${1:-1}
[[ $# -eq 0 ]] || shift
parameters=/sys/module/tiffin_vfs/parameters
file_places=(readahead read-done write fault write-back written-back truncate truncated allocate allocated times
    direct-read direct-write direct-end)
name_places=(found created unlinked evict)
make_device 64
load_modules
make_file_system
mount_device rw

# with_delays PLACE COMMAND...: and they do happen.
with_delays() {
    local place=$1
    shift
    echo 0 >$parameters/delays
    echo "$place" >$parameters/delay_at
    echo 20 >$parameters/delay_ms
    "$@" || fail "delays at '$place', seed $seed: see above"
    echo 0 >$parameters/delay_ms
    [[ $(<$parameters/delays) -gt 0 ]] || fail "nothing comes by '$place'"
}
# compare PLACE: nobody changes anything now.
compare() {
    sync
    python3 "$repository/tests/uml/races.py" compare "$mount_point" || fail "'$1', seed $seed: the kernel's log says which"
}

for place in "${file_places[@]}"; do
    [[ $# -eq 0 || " $* " == *" $place "* ]] || continue
    say "$place"
    with_delays "$place" python3 "$repository/tests/uml/races.py" use "$mount_point" "$seed"
    compare "$place"
    remount "$place"
    python3 "$repository/tests/uml/races.py" verify "$mount_point" || fail "'$place', seed $seed, after the remount: see above"
    find "$mount_point" -mindepth 1 -delete
done
for place in "${name_places[@]}"; do
    [[ $# -eq 0 || " $* " == *" $place "* ]] || continue
    say "$place"
    # Meanwhile, inodes leave memory.
    while sleep 0.3; do drop_caches; done &
    dropper=$!
    with_delays "$place" python3 "$repository/tests/mount/parallel_use.py" "$mount_point" /tmp/record --programs 4 \
        --seed "$seed" --operations 60
    kill "$dropper"
    wait "$dropper" || true
    compare "$place"
    remount "$place"
    python3 "$repository/tests/mount/parallel_use.py" "$mount_point" /tmp/record --verify ||
        fail "'$place', seed $seed, after the remount: see above"
    find "$mount_point" -mindepth 1 -delete
done
unmount_device
unload_modules
say "done"
