#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The daemon is killed at random moments under load, again and again. After each time the checker must
# find nothing, before and after the recovery, and whatever fsync had promised must be there.
#
# usage: kill_and_recover.sh DEVICE_ADDRESS [ROUNDS]
#
# DEVICE_ADDRESS is file:PATH; what PATH holds is lost. A kill does not take away what the kernel had
# been given to write to the image, so this tests the daemon's promises, not the disk's; tests/crash
# does the latter.
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") file:PATH [ROUNDS]" >&2; exit 2; }
rounds=${2:-6}
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs sha256sum dd shuf

use_device "$1" 512M
in_memory && fail "what is in memory does not survive the daemon"
promises=$work/promises  # of each writer: "SHA256  NAME", a line for each file that was fsynced
versions=$work/versions  # numbers of the versions of 'replaced' that were made durable
touch "$promises-a" "$promises-b" "$versions"

# Files that are written once and fsynced; each is promised after that.
write_files() {
    local writer=$1 round=$2 number=0 name
    mkdir -p "$mount_point/files-$writer"
    while :; do
        name=files-$writer/$round-$((number++))
        head -c $((RANDOM * 7 % 200000)) /dev/urandom >"$work/source-$writer"
        dd if="$work/source-$writer" of="$mount_point/$name" bs=32K conv=fsync status=none || return 0
        echo "$(sha256sum <"$work/source-$writer" | cut -d' ' -f1)  $name" >>"$promises-$writer"
        # Old ones go, so that the volume does not fill.
        if ((number > 60)); then
            name=files-$writer/$round-$((number - 60))
            sed -i "\\|  $name\$|d" "$promises-$writer"
            rm -f "$mount_point/$name" || return 0
        fi
    done
}

# A file that is replaced by rename: there is always one whole version of it.
replace_file() {
    local number
    number=$(tail -n 1 "$versions")
    number=${number:-0}
    while :; do
        number=$((number + 1))
        # shellcheck disable=SC2046
        { echo "$number"; printf "version $number%.0s\n" $(seq $((1 + RANDOM % 3000))); echo "end $number"; } \
            >"$work/version"
        dd if="$work/version" of="$mount_point/replaced.new" conv=fsync status=none || return 0
        mv "$mount_point/replaced.new" "$mount_point/replaced" || return 0
        sync "$mount_point/replaced" || return 0
        echo "$number" >>"$versions"
    done
}

# Everything else: trees come and go, nothing is promised.
make_trees() {
    local number=0
    while :; do
        mkdir -p "$mount_point/trees/$number" || return 0
        cp -r /usr/include/linux/netfilter /usr/include/linux/can "$mount_point/trees/$number/" || return 0
        mv "$mount_point/trees/$number/can" "$mount_point/trees/can-$number" || return 0
        ln "$mount_point/trees/can-$number/gw.h" "$mount_point/trees/link-$number" || return 0
        truncate -s $((RANDOM * 3)) "$mount_point/trees/link-$number" || return 0
        rm -rf "$mount_point/trees/$number" "$mount_point/trees/can-$((number - 2))" || return 0
        number=$((number + 1))
    done
}

check_promises() {
    cat "$promises"-? >"$work/all"
    (cd "$mount_point" && sha256sum --check --quiet --strict "$work/all") >"$work/missing" 2>&1 ||
        fail "round $1: what was fsynced is lost or wrong: $(<"$work/missing")"
    local durable found
    durable=$(tail -n 1 "$versions")
    [[ -n $durable ]] || return 0
    [[ -f $mount_point/replaced ]] || fail "round $1: the replaced file has no version at all"
    found=$(head -n 1 "$mount_point/replaced")
    [[ $found -ge $durable ]] || fail "round $1: version $found, but $durable was durable"
    [[ $(tail -n 1 "$mount_point/replaced") == "end $found" ]] ||
        fail "round $1: version $found is not whole"
    [[ $(grep -cvx "version $found" "$mount_point/replaced") -eq 2 ]] ||
        fail "round $1: version $found holds lines of others"
}

# The load runs in a process group of its own, so that all of it can be ended.
start_load() {
    set -m
    (
        write_files a "$1" &
        write_files b "$1" &
        replace_file &
        make_trees &
        wait
    ) 2>"$work/load.log" &
    load_group=("$!")
    set +m
}

end_load() { end_group KILL; }

for ((round = 1; round <= rounds; round++)); do
    mount_device "commit=1"
    rm -rf "$mount_point/trees"
    start_load "$round"
    # Not before something was promised, and then at any moment.
    count_promises() { cat "$promises"-? | wc -l; }
    before=$(count_promises)
    more_is_promised() { [[ $(count_promises) -ge $((before + 3)) ]]; }
    wait_until more_is_promised
    sleep "$(shuf -i 0-2 -n 1).$(shuf -i 0-9 -n 1)"
    kill_server
    end_load
    take_dead_mount
    check_device "round $round, before the recovery"
    # A read-only mount replays in memory and writes nothing; then it may be made writable.
    last_write=$(stat -c '%y %b' "${device#file:}")
    content=$(sha256sum <"${device#file:}")
    mount_device ro
    check_promises "$round"
    [[ $(stat -c '%y %b' "${device#file:}") == "$last_write" && $(sha256sum <"${device#file:}") == "$content" ]] ||
        fail "round $round: a read-only mount has written"
    "$bin/mount.tiffin" "$device" "$mount_point" -o remount,rw || fail "round $round: remount,rw"
    check_promises "$round"
    echo "$round" >"$mount_point/written-later"
    unmount_device
    check_device "round $round, after the recovery"
    echo "round $round: $(count_promises) files and version $(tail -n 1 "$versions") were promised and are there"
done
echo "passed"
