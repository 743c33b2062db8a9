#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A restart of tiffind on purpose (SIGUSR2) under a mounted file system: another program serves with the same
# memory, what needed a restart has changed, and nobody notices but by a delay. A program that cannot serve and a
# configuration with mistakes cost no more than that.
#
# usage: restart.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

# The server's program is a file of its own here, which is replaced as an upgrade does it.
mkdir "$work/programs"
for program in mount.tiffin mkfs.tiffin fsck.tiffin tiffin; do
    ln -s "$(realpath "$bin/$program")" "$work/programs/$program"
done
built=$bin/tiffind
bin=$work/programs
install_server() {
    cp "$1" "$bin/tiffind.new"
    chmod 755 "$bin/tiffind.new"
    mv "$bin/tiffind.new" "$bin/tiffind"
}

settings=('threads = 1')
install_server "$built"
start_server
use_device "$(make_volume files 128M)"
mount_device

program_of() { readlink "/proc/$1/exe"; }
data_threads_of() { grep -c '^tiffind-data' <(cat "/proc/$1/task/"*/comm); }
said() { grep -c -- "$1" "$server_log" || true; }
said_to() { [[ $(said "$1") -gt 0 ]]; }

# restart_server: another worker serves afterwards, under the same keeper.
restart_server() {
    local before kept
    before=$(worker)
    kept=$(said 'memory kept')
    kill -USR2 "$keeper"
    wait_until has_ended "$before"
    wait_until server_is_ready
    [[ $(worker) != "$before" ]] || fail "the worker is the same"
    [[ $(said 'memory kept') -gt $kept ]] || fail "the memory was not found again"
}

# Files that nobody has flushed when the server goes, while others are being written.
write_files() {
    local number=0
    until [[ -e $work/stop ]]; do
        head -c $((RANDOM * 10)) /dev/urandom >"$work/source"
        cp "$work/source" "$mount_point/$1-$((number % 20))"
        sed -i "/  $1-$((number % 20))\$/d" "$work/$1.sums"
        echo "$(sha256sum <"$work/source" | cut -d' ' -f1)  $1-$((number % 20))" >>"$work/$1.sums"
        number=$((number + 1))
        echo "$number" >"$work/written"
    done
}
has_written() { [[ -s $work/written && $(<"$work/written") -ge $1 ]]; }
check_files() {
    echo 3 2>/dev/null >/proc/sys/vm/drop_caches || true
    (cd "$mount_point" && sha256sum --check --quiet "$work/files.sums") || fail "content differs $1"
}

say "another program and another configuration, in the middle of writing"
[[ $(data_threads_of "$(worker)") -eq 1 ]] || fail "it has other threads than one"
touch "$work/files.sums"
write_files files &
writer=$!
wait_until has_written 20
install_server "$built"
settings=('threads = 3')
write_configuration
restart_server
[[ $(program_of "$keeper") == *' (deleted)' ]] || fail "the keeper's program was not replaced"
[[ $(program_of "$(worker)") == "$(realpath "$bin")/tiffind" ]] ||
    fail "the worker runs $(program_of "$(worker)")"
[[ $(data_threads_of "$(worker)") -eq 3 ]] || fail "the configuration was not read anew"
wait_until has_written $(($(<"$work/written") + 20))

say "the worker that was started so: signalled, which it does not mind, and killed"
serving=$(worker)
kill -USR2 "$serving"
kill -USR1 "$serving" "$keeper"
wait_until said_to 'SIGUSR1 is ignored'
server_is_ready || fail "the worker does not answer"
[[ $(worker) == "$serving" ]] || fail "the worker has ended"
kill_worker
wait_until has_written $(($(<"$work/written") + 20))

say "a program that cannot serve"
printf '#!/bin/sh\nexit 0\n' >"$work/broken"
install_server "$work/broken"
restart_server
[[ $(program_of "$(worker)") == *' (deleted)' ]] || fail "the worker runs $(program_of "$(worker)")"
[[ $(said 'what was started first goes on') -eq 1 ]] || fail "the log does not say who serves"
wait_until has_written $(($(<"$work/written") + 20))
touch "$work/stop"
wait "$writer" || fail "the writer saw an error"
check_files "after the restarts"

say "a configuration with a mistake, then a right one"
install_server "$built"
echo 'nonsense' >>"$work/tiffind.toml"
restart_server
[[ $(said 'what was started first goes on') -eq 2 ]] || fail "the log does not say who serves"
write_configuration
restart_server
[[ $(program_of "$(worker)") == "$(realpath "$bin")/tiffind" ]] ||
    fail "the worker runs $(program_of "$(worker)")"
[[ $(said 'its memory was lost') -eq 0 ]] || fail "memory was lost"
check_files "in the end"
unmount_device
check_device "after restarts"
mount_device
check_files "after mounting again"
unmount_device
process=$keeper
serving=$(worker)
stop_server
has_ended "$process" || fail "the keeper does not end"
has_ended "$serving" || fail "the worker does not end"
echo "passed: $(<"$work/written") files written, 4 restarts"
