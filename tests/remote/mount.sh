#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A file system on the memory of a server: mounting, a server that is killed, stopped or started
# again, and writers that compete. After each, fsck.tiffin finds nothing and the content is there.
#
# usage: mount.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/writing.sh
source "$(dirname "$0")/lib/writing.sh"
need_programs sha256sum pgrep python3

second=$work/second
mkdir "$second"

# says TEXT STATUS COMMAND...: the command ends with the status and says the text in its only line.
says() {
    local text=$1 expected=$2 output status=0
    shift 2
    output=$("$@" 2>&1) || status=$?
    [[ $status -eq $expected ]] || fail "$* ended with $status, expected $expected: $output"
    [[ $output == *"$text"* ]] || fail "$* said '$output', expected '$text'"
    [[ $(wc -l <<<"$output") -eq 1 ]] || fail "not one line from $*: $output"
}

has_stopped() { grep -q '^State:.T' "/proc/$1/status"; }
reconnecting() { [[ $(status_of state) == reconnecting ]]; }
remount() {
    unmount_device
    check_device "$1"
    mount_device
}

say "a volume, a file system, a mount"
start_server
address=$(make_volume books 512M)
says "there is no tiffin file system" 32 "$bin/mount.tiffin" "$address" "$second"
use_device "$address"
mount_device
[[ $(status_of transport) == "$transport (asked for)" && $(status_of state) == ready ]] || fail "status: $("$bin/tiffin" status "$mount_point")"
[[ $(status_of reconnections) -eq 0 ]] || fail "reconnected without a reason"
cp -a "$repository/docs" "$mount_point/docs"
remount "after a copy"
diff -r "$repository/docs" "$mount_point/docs" >"$work/diff" || fail "the copy differs: $(head -n 5 "$work/diff")"

if [[ $transport != shm ]]; then  # where there is no network
    say "encrypted"
    in_clear=$device
    device+="&encrypt=yes"
    remount "before all is encrypted"
    [[ $(status_of transport) == "$transport (asked for)" ]] || fail "status: $("$bin/tiffin" status "$mount_point")"
    [[ $(status_of encryption) == "data are sealed" ]] || fail "not encrypted: $(status_of encryption)"
    cp -a "$repository/docs" "$mount_point/encrypted"
    device=$in_clear
    remount "after a copy that was encrypted"
    [[ $(status_of encryption) == none* ]] || fail "encrypted without a reason: $(status_of encryption)"
    diff -r "$repository/docs" "$mount_point/encrypted" >"$work/diff" || fail "it differs: $(head -n 5 "$work/diff")"
fi

say "wrong key, unknown volume"
printf '%064d\n' 7 >"$work/wrong.key"
chmod 600 "$work/wrong.key"
wrong=tiffin://127.0.0.1:$port
for place in "$wrong/books?key_file=$work/wrong.key" "$wrong/films?key_file=$work/books.key"; do
    ! "$bin/mount.tiffin" "$place" "$second" 2>"$work/refused" || fail "mounted $place"
    [[ $(wc -l <"$work/refused") -eq 1 ]] || fail "not one line about $place: $(<"$work/refused")"
done

say "a second writer"
says "is being written by $(hostname), process $server" 32 "$bin/mount.tiffin" "$address" "$second"
says "is being written by $(hostname), process $server" 1 "$bin/mkfs.tiffin" -f "$address"
says "is being written by $(hostname), process $server" 8 "$bin/fsck.tiffin" -y "$address"
says "is being written by $(hostname), process $server" 1 "$bin/tiffin" info "$address"
cp -a "$repository/docs" "$mount_point/still-mine"

say "tiffind killed while files are written"
has_reconnected() { [[ $(status_of reconnections) -ge $1 ]]; }
start_writing_files killed
for number in 1 2 3; do
    wait_until has_promised killed $((number * 4))
    victim=$(worker)
    kill -KILL "$victim"
    wait_until has_ended "$victim"
    wait_until has_reconnected "$number"
done
wait_until has_promised killed 20
stop_writing_files
[[ $(status_of reconnections) -ge 3 ]] || fail "not reconnected: $("$bin/tiffin" status "$mount_point")"
check_files killed
remount "after tiffind was killed"
check_files killed

say "tiffind stopped for a second"
start_writing_files stopped 40
wait_until has_promised stopped 3
stopped=$(worker)
kill -STOP "$stopped"
wait_until has_stopped "$stopped"
reconnections=$(status_of reconnections)
before=$(wc -l <"$work/promised-stopped")
sleep 1
after=$(wc -l <"$work/promised-stopped")
kill -CONT "$stopped"
# Over shm nothing needs the server.
[[ $transport == shm || $after -le $((before + 1)) ]] || fail "something was promised by nobody"
wait_until has_promised stopped $((after + 5))
[[ $(status_of reconnections) -eq $reconnections ]] || fail "a second was too long: $("$bin/tiffin" status "$mount_point")"

say "tiffind stopped for a while"
seconds_stopped=2
[[ $transport != tcp ]] || seconds_stopped=30
kill -STOP "$stopped"
wait_until reconnecting
before=$(wc -l <"$work/promised-stopped")
sleep "$seconds_stopped"
reconnecting || fail "given up: $("$bin/tiffin" status "$mount_point")"
[[ $(wc -l <"$work/promised-stopped") -le $((before + 1)) ]] || fail "something was promised by nobody"
kill -CONT "$stopped"
wait_until has_promised stopped $((before + 5))
[[ $(worker) -eq $stopped ]] || fail "tiffind was started again"
[[ $(status_of reconnections) -gt $reconnections ]] || fail "not reconnected: $("$bin/tiffin" status "$mount_point")"
stop_writing_files
# The one that was being written may have taken the place of the oldest.
tail -n 39 "$work/promised-stopped" >"$work/last-stopped"
remount "after tiffind was stopped"
check_files killed
check_files stopped "$work/last-stopped"

say "a takeover while the old holder writes"
start_writing_files taken
wait_until has_promised taken 5
cp "$work/promised-taken" "$work/before"
old_server=$server
"$bin/mount.tiffin" "$address" "$second" -o "force,log=$work/second.log" || fail "no takeover"
kept=$mount_point
mount_point=$second
check_files taken "$work/before"
mkdir "$mount_point/mine"
cp -a "$repository/docs" "$mount_point/mine/docs"
sync -f "$mount_point"
mount_point=$kept
wait "${load_group[0]}" 2>/dev/null || true
load_group=()
! { touch "$mount_point/more" && sync "$mount_point/more"; } 2>/dev/null || fail "the old holder still writes"
server=$old_server
if [[ $transport == shm ]]; then
    # The memory can only be taken from a process with its life.
    has_ended "$server" || fail "the old holder lives"
    [[ $(grep -c "process $server has its memory mapped and is killed" "$server_log") -ge 1 ]] ||
        fail "the server does not say whom it has killed"
    take_away -l
    server=""
else
    [[ $(grep -c "another client has taken the volume" "$log") -eq 1 ]] || fail "not one line in the log"
    unmount_device
fi
"$bin/tiffin" status "$second" >"$work/status"
server=$(sed -n 's/^process: //p' "$work/status")
umount "$second"
wait_until has_ended "$server"
server=""
check_device "after a takeover"
mount_device
diff -r "$repository/docs" "$mount_point/mine/docs" >"$work/diff" || fail "the new holder's files differ"
check_files taken "$work/before"
check_files killed
check_files stopped "$work/last-stopped"

say "the server's memory is lost"
start_writing_files lost
wait_until has_promised lost 3
victim=$(worker)
kill -KILL "$keeper" "$victim"
wait_until has_ended "$keeper"
wait_until has_ended "$victim"
keeper=""
start_server
wait "${load_group[0]}" 2>/dev/null || true
load_group=()
failing() { ! ls "$mount_point/lost" >/dev/null 2>&1 || ! touch "$mount_point/x" 2>/dev/null; }
wait_until failing
[[ $(grep -c "content is gone from the server" "$log") -eq 1 ]] || fail "not one line in the log: $(<"$log")"
take_away -l
wait_until has_ended "$server"
server=""
says "there is no tiffin file system" 32 "$bin/mount.tiffin" "$address" "$second"

say "a volume with a backing file survives even that"
address=$(make_volume films 256M --backing "$work/films.backing")
use_device "$address"
mount_device
[[ $(status_of "flushes to disk") == yes ]] || fail "no backing file"
start_writing_files kept
wait_until has_promised kept 6
stop_writing_files
unmount_device
victim=$(worker)
kill -KILL "$keeper" "$victim"
wait_until has_ended "$keeper"
wait_until has_ended "$victim"
keeper=""
start_server
check_device "from the backing file"
mount_device
check_files kept
unmount_device
echo "passed"
