# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the scripts that mount a real tiffinfs share: mounting, killing, checking, cleaning up. The
# programs are taken from the directory in TIFFIN_BIN, by default that of the release build.
# shellcheck shell=bash

repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../..")
bin=${TIFFIN_BIN:-$repository/build/release/bin}

fail() {
    echo "FAILED: $*" >&2
    cat "${work:-/nonexistent}"/sanitizer.* 2>/dev/null | head -n 200 >&2 || true
    if [[ -s ${log:-} ]]; then
        echo "the last lines of the file system's log:" >&2
        tail -n 20 "$log" >&2
    fi
    exit 1
}

# say TEXT: what is done now, so that a failure has a place.
say() { echo "== $*"; }

[[ -c /dev/fuse ]] || fail "/dev/fuse is missing: this machine cannot mount (load the module 'fuse')"
for program in mount.tiffin mkfs.tiffin fsck.tiffin tiffin; do
    [[ -x $bin/$program ]] || fail "$bin/$program is missing; build it, or set TIFFIN_BIN"
done
need_programs() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || fail "'$program' is not installed"
    done
}

work=$(mktemp -d "${TMPDIR:-/tmp}/tiffin-test.XXXXXX")
mount_point=$work/mnt
log=$work/log
mkdir "$mount_point"
chmod 755 "$work"  # other users must get to the mount
device=""
server=""
own_image=""   # removed at the end
load_group=()  # process groups to end

# Where programs were built with a sanitizer: the daemon has no standard error that anybody sees.
for variable in ASAN_OPTIONS TSAN_OPTIONS UBSAN_OPTIONS; do
    export "$variable=${!variable:+${!variable}:}log_path=$work/sanitizer"
done
has_sanitizer_report() { compgen -G "$work/sanitizer.*" >/dev/null; }
check_sanitizer() { ! has_sanitizer_report || fail "a sanitizer has found something"; }

# shellcheck source=tests/support/wait.sh
source "$repository/tests/support/wait.sh"

take_away() { take_away_from "$mount_point" "$@"; }
take_away_from() {
    local place=$1
    shift
    if [[ $(id -u) -eq 0 ]]; then
        umount "$@" "$place"
    else
        fusermount3 -u "${@/-l/-z}" "$place"
    fi
}

# clean_up STATUS: ends the script with it. A trap that does something before has to keep it: $? is that of its last command.
clean_up() {
    local status=$1 group
    trap - EXIT
    if [[ $status -eq 0 ]] && has_sanitizer_report; then
        echo "FAILED: a sanitizer has found something" >&2
        cat "$work"/sanitizer.* >&2
        status=1
    fi
    [[ -z $filler ]] || kill "$filler" 2>/dev/null || true
    for group in "${load_group[@]}"; do
        kill -KILL -- "-$group" 2>/dev/null || true
    done
    # The mounts of a second holder, too.
    local place places
    mapfile -t places < <(awk '{ print $2 }' /proc/self/mounts)
    for place in "${places[@]}"; do
        [[ $place != "$work"/* ]] || take_away_from "$place" -l || true
    done
    # A daemon whose mount was taken away ends by itself; one that hangs must not outlive the test.
    if [[ -n $server ]]; then
        local i
        for ((i = 0; i < 200; i++)); do
            has_ended "$server" && break
            pause 0.05
        done
        has_ended "$server" || kill -KILL "$server" 2>/dev/null || true
    fi
    rm -rf --one-file-system "$work"
    [[ -z $own_image ]] || rm -f "$own_image"
    exit "$status"
}
trap 'clean_up $?' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# use_device ADDRESS SIZE: makes a file system. A file is made anew: what it held is lost. A remote volume
# has its size already.
use_device() {
    device=$1
    case $device in
        mem:*) ;;
        file:*)
            own_image=${device#file:}
            rm -f "$own_image"
            truncate -s "$2" "$own_image"
            "$bin/mkfs.tiffin" -q "$device" || fail "mkfs.tiffin $device"
            ;;
        tiffin:*) "$bin/mkfs.tiffin" -q -f "$device" || fail "mkfs.tiffin $device" ;;
        *) fail "device addresses here are mem:SIZE, file:PATH and tiffin://HOST/VOLUME, not '$device'" ;;
    esac
}

in_memory() { [[ $device == mem:* ]]; }

# mount_device [OPTIONS]: a remote volume also when one that was killed has not given it back.
mount_device() {
    local force=""
    [[ $device != tiffin:* ]] || force=,force
    "$bin/mount.tiffin" "$device" "$mount_point" -o "log=$log${1:+,$1}$force" ||
        fail "mount.tiffin $device $mount_point ${1:+-o $1}"
    is_mounted || fail "mount.tiffin returned 0 and nothing is mounted"
    server=$("$bin/tiffin" status "$mount_point" | sed -n 's/^process: //p')
    [[ -n $server ]] || fail "tiffin status does not tell the process"
    start_filler "${1:-}"
}

# With TIFFIN_FILL_KEPT_MIB the volume fills and empties all the time a script uses it, and so much stays free.
filler=""
start_filler() {
    [[ -n ${TIFFIN_FILL_KEPT_MIB:-} && ,$1, != *,ro,* ]] || return 0
    python3 "$repository/tests/mount/lib/filler.py" "$mount_point" "$TIFFIN_FILL_KEPT_MIB" "$RANDOM" \
        2>"$work/filler" &
    filler=$!
}
# It has not ended by itself, unless the mount has.
stop_filler() {
    [[ -n $filler ]] || return 0
    kill "$filler" 2>/dev/null || true
    local status=0
    wait "$filler" || status=$?
    # 0: it met the end of the mount.
    [[ $status -eq 143 || ($status -eq 0 && -z $server) ]] || fail "the filler ended with $status: $(<"$work/filler")"
    filler=""
}

# end_group SIGNAL: ends the load. What its shell has started may hold the mount a little longer than the shell lives.
group_has_ended() { ! pgrep -g "$1" --runstates RSDTt >/dev/null; }
end_group() {
    kill "-$1" -- "-${load_group[0]}" 2>/dev/null || true
    wait "${load_group[0]}" 2>/dev/null || true
    wait_until group_has_ended "${load_group[0]}"
    load_group=()
}

# Anybody's df asks all mounts and keeps each busy for that moment: so not only once. What still holds it after a minute is a fault.
unmount_device() {
    stop_filler
    local i
    for ((i = 0; i < 60; i++)); do
        take_away 2>"$work/umount" && break
        pause 1
    done
    [[ $i -lt 60 ]] || fail "cannot unmount: $(<"$work/umount")"
    wait_until has_ended "$server"
    server=""
    check_sanitizer
}

# As a crash of the machine would, for the daemon: nothing that it holds in memory survives. The dead
# mount stays, so that programs meet errors and not the directory below; then take_dead_mount.
kill_server() {
    kill -KILL "$server"
    wait_until has_ended "$server"
    server=""
    stop_filler
}

take_dead_mount() {
    take_away -l || fail "the dead mount cannot be taken away"
    ! is_mounted || fail "the dead mount is still there"
}

# check_device WHEN: the checker finds nothing.
check_device() {
    local status _
    for _ in {1..200}; do
        status=0
        "$bin/fsck.tiffin" -n -f --data "$device" >"$work/fsck" 2>&1 || status=$?
        # A remote volume is that of a killed writer until this has been silent for some time.
        if [[ $status -ne 8 || $device != tiffin:* ]] || ! grep -q "is being written by" "$work/fsck"; then
            break
        fi
        pause 0.1
    done
    [[ $status -eq 0 ]] || fail "fsck.tiffin -n, $1, ended with $status: $(<"$work/fsck")"
}
