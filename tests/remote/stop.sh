#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# An orderly stop (SIGTERM) of a server with a backing under a mounted file system that writes and does not sync:
# after the next start the mount goes on, and all that was acknowledged is there.
#
# usage: stop.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs pgrep sha256sum

start_server
use_device "$(make_volume durable 128M --backing "$work/backing")"
mount_device

# Past the page cache: each file is acknowledged by the server, and none is synced.
write_files() {
    local number
    for ((number = 1; number <= 80; number++)); do
        dd if=/dev/urandom of="$work/part" bs=4096 count=$((RANDOM % 16 + 1)) status=none
        dd if="$work/part" of="$mount_point/$1-$((number % 20))" bs=64K oflag=direct status=none || return 1
        sed -i "/  $1-$((number % 20))\$/d" "$work/sums"
        echo "$(sha256sum <"$work/part" | cut -d' ' -f1)  $1-$((number % 20))" >>"$work/sums"
        echo "$number" >"$work/written"
    done
}
has_written() { [[ -s $work/written && $(<"$work/written") -ge $1 ]]; }
has_worker() { [[ -n $(worker) ]]; }
# It starts again by itself, later each time: after this there is time to do something before.
kill_worker_until_it_stays_away() {
    local victim
    for _ in 1 2 3 4 5; do
        wait_until has_worker
        victim=$(worker)
        kill -KILL "$victim"
        wait_until has_ended "$victim"
    done
}
# What the server calls its content.
said_content() { "$bin/tiffin" volume info durable --socket "$admin" | sed -n 's/^content incarnation: *//p'; }
check_files() {
    echo 3 2>/dev/null >/proc/sys/vm/drop_caches || true
    (cd "$mount_point" && sha256sum --check --quiet "$work/sums") || fail "content differs $1"
}
: >"$work/sums"

say "stopped while nobody writes"
write_files idle
stop_server
start_server
check_files "after a stop"

for round in 1 2; do
    say "stopped in the middle of writing, $round"
    rm -f "$work/written"
    write_files "busy-$round" &
    writer=$!
    wait_until has_written $((15 * round))
    stop_server
    start_server
    wait "$writer" || fail "the writer saw an error: $(tail -n 3 "$log")"
    check_files "after stop $round"
done
! grep "does not answer" "$server_log" || fail "a client was not heard"

# Over shm the client has the memory mapped, and cannot say in time that it has left it.
if [[ $transport != shm ]]; then
    say "stopped when there is no server, but its memory"
    write_files died
    kill_worker_until_it_stays_away
    stop_server
    start_server
    check_files "after a stop without a server"

    say "stopped, and the server is killed before it has written anything"
    write_files killed
    victim=$(worker)
    kill -STOP "$victim"
    kill -TERM "$keeper"
    kill -KILL "$victim"
    wait "$keeper" || fail "tiffind ended with $?: $(tail -n 5 "$server_log")"
    keeper=""
    start_server
    check_files "after a stop with an accident"
fi
sync -f "$mount_point"
unmount_device
check_device "after stops"
mount_device
check_files "after mounting again"

say "killed afterwards: what was lost is not called kept"
! grep -q "is_flushed" "$work/state/durable.volume" || fail "the state says that all is flushed"
content_before=$(said_content)
dd if=/dev/urandom of="$mount_point/lost" bs=64K count=20 oflag=direct status=none
kill_server
start_server
[[ $(said_content) -gt $content_before ]] || fail "the content is said to be what it was"
! sync "$mount_point/lost" 2>/dev/null || fail "what was lost is said to be synced"
grep -q "the server has lost what was not flushed" "$log" || fail "the log does not say what was lost"
take_away -l
wait_until has_ended "$server"
server=""

if [[ $transport == tcp ]]; then
    say "stopped when there is no server, and none can start: the log tells what is lost"
    kill_worker_until_it_stays_away
    python3 -c 'import socket, sys, time
with socket.socket() as s:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", int(sys.argv[1])))
    s.listen()
    open(sys.argv[2], "w").close()
    time.sleep(600)' "$port" "$work/taken" &
    taker=$!
    wait_until test -e "$work/taken"
    : >"$server_log"
    status=0
    end_server || status=$?
    kill "$taker"
    [[ $status -eq 1 ]] || fail "tiffind ended with $status: $(tail -n 5 "$server_log")"
    grep -q "volume durable: its memory is lost" "$server_log" || fail "the log does not say it: $(<"$server_log")"
    start_server
fi

if [[ $transport == tcp ]]; then
    # The volume is not served, and its memory is all that there is.
    for comes_back in yes no; do
        say "a backing that is missing when the worker starts again, and is back at the stop: $comes_back"
        use_device "$(make_volume "away-$comes_back" 64M --backing "$work/away-$comes_back")"
        mount_device
        dd if=/dev/urandom of="$mount_point/file" bs=64K count=20 oflag=direct status=none
        sum=$(sha256sum <"$mount_point/file")
        mv "$work/away-$comes_back" "$work/elsewhere"
        : >"$server_log"
        kill -KILL "$(worker)"
        wait_until grep -q "volume away-$comes_back: backing" "$server_log"
        wait_until has_worker
        [[ $comes_back == no ]] || mv "$work/elsewhere" "$work/away-$comes_back"
        status=0
        end_server || status=$?
        if [[ $comes_back == yes ]]; then
            [[ $status -eq 0 ]] || fail "tiffind ended with $status: $(tail -n 5 "$server_log")"
            start_server
            [[ $(sha256sum <"$mount_point/file") == "$sum" ]] || fail "what was acknowledged is lost"
            unmount_device
        else
            [[ $status -eq 1 ]] || fail "tiffind ended with $status: $(tail -n 5 "$server_log")"
            grep -q "volume away-no: its memory is lost" "$server_log" || fail "the log does not say it: $(<"$server_log")"
            kill -KILL "$server"
            take_away -l
            wait_until has_ended "$server"
            server=""
            mv "$work/elsewhere" "$work/away-no"
            start_server
        fi
    done
fi

if [[ $(id -u) -eq 0 && $transport == tcp ]]; then
    say "a backing that has no room: the exit status tells"
    backing=$work/backing_folder
    mkdir "$backing"
    mount -t tmpfs -o size=8M none "$backing"
    trap 'status=$?; umount -l "$backing" 2>/dev/null || true; clean_up $status' EXIT
    truncate -s 64M "$backing/tight"
    use_device "$(make_volume tight 64M --backing "$backing/tight")"
    mount_device
    head -c 100M /dev/zero >"$backing/filler" 2>/dev/null && fail "the tmpfs is not full"
    dd if=/dev/urandom of="$mount_point/lost" bs=64K count=200 oflag=direct status=none 2>/dev/null || true
    status=0
    end_server || status=$?
    [[ $status -eq 1 ]] || fail "tiffind ended with $status: $(tail -n 5 "$server_log")"
    grep -q "volume tight: what was not flushed is lost" "$server_log" || fail "the log does not say what was lost"
    kill -KILL "$server"
    take_away -l
    wait_until has_ended "$server"
    server=""
fi
echo "passed"
