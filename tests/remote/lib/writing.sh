# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A load that keeps account of what was synced, for scripts that let servers fail meanwhile. Sourced after
# tests/mount/lib/device.sh, whose $work and $mount_point it uses.
# shellcheck shell=bash

: "${work:?}" "${mount_point:?}"

# write_files FOLDER KEPT: files that are written one after the other, each synced and then named in `promised`;
# only the last KEPT of them stay, or the volume would be full before a stopped server is noticed over shm.
write_files() {
    local number
    for ((number = 1; ; number++)); do
        rm -f "$mount_point/$1/$((number - $2))" || return 0
        head -c $((100000 + RANDOM * 60)) /dev/urandom >"$work/part" || return 0
        cp "$work/part" "$mount_point/$1/$number" || return 0
        sync "$mount_point/$1/$number" || return 0
        echo "$(sha256sum <"$work/part") $number" >>"$work/promised-$1"
    done
}
# start_writing_files FOLDER [KEPT]
start_writing_files() {
    mkdir "$mount_point/$1"
    : >"$work/promised-$1"
    set -m
    write_files "$1" "${2:-1000000}" 2>"$work/writer-$1" &
    # shellcheck disable=SC2034  # device.sh ends it
    load_group=("$!")
    set +m
}
has_promised() { [[ $(wc -l <"$work/promised-$1") -ge $2 ]]; }
stop_writing_files() { end_group TERM; }
# check_files FOLDER [LIST]
check_files() {
    local sum number count=0
    [[ -s ${2:-$work/promised-$1} ]] || fail "nothing was promised in $1"
    while read -r sum _ number; do
        [[ $(sha256sum <"$mount_point/$1/$number") == "$sum  -" ]] || fail "$1/$number has another content"
        count=$((count + 1))
    done <"${2:-$work/promised-$1}"
    echo "$count files were promised and are there"
}
