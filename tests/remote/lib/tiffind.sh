# SPDX-License-Identifier: MIT OR GPL-2.0-only
# shellcheck shell=bash
# A tiffind of a test's own, on the loopback; sourced. Afterwards: $work (a temporary folder), $server (the
# keeper's process), $admin (arguments for tiffin volume), $port, $key.
bin=${TIFFIN_BIN:?the folder with the programs}
work=$(mktemp -d /tmp/tiffin-remote-XXXXXX)
server=
port=$(python3 -c 'import random, socket
while True:  # below those that the kernel gives to clients
    port = random.randrange(20000, 32000)
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            continue
    print(port)
    break')
admin=(--socket "$work/run/admin.sock")
mount_point=$work/mount
settings=()  # further lines of the configuration

say() { printf '%s: %s\n' "$(basename "$0")" "$*"; }
fail() { say "FAILED: $*" >&2; sed 's/^/    /' "$work/log" >&2 || true; exit 1; }

# Waits up to 20 s until a command succeeds.
wait_until() {
    local attempt
    for ((attempt = 0; attempt < 200; attempt++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    fail "in 20 s there was no: $*"
}

volumes() { "$bin/tiffin" volume list "${admin[@]}"; }

start_server() {
    mkdir -p "$work/run" "$mount_point"
    {
        printf '%s\n' "listen = \"127.0.0.1:$port\"" "state_directory = \"$work/state\"" \
            "runtime_directory = \"$work/run\"" 'metrics = ""' 'memory_limit = "1G"' \
            'huge_pages = "no"' 'lock_memory = "no"' 'probe_interval_ms = 200' "${settings[@]}"
    } >"$work/tiffind.toml"
    "$bin/tiffind" --config "$work/tiffind.toml" 2>>"$work/log" &
    server=$!
    wait_until volumes
}

# The process that serves: the keeper's child.
worker() { pgrep --parent "$server"; }

# kill_worker: with -9; returns when another one answers.
kill_worker() {
    local old
    old=$(worker)
    kill -9 "$old"
    wait_until replaced "$old"
    wait_until volumes
}
replaced() {
    local present
    present=$(worker) && [[ $present != "$1" ]]
}

# Ends the keeper; returns when both processes are gone.
stop_server() {
    [[ -n $server ]] || return 0
    local child
    child=$(worker || true)
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
    [[ -z $child ]] || wait_until gone "$child"
}
gone() { ! kill -0 "$1" 2>/dev/null; }

# create_volume NAME SIZE [ARGUMENT...]: $address is how clients name it.
create_volume() {
    local name=$1
    key=$work/$name.key
    "$bin/tiffin" volume create "$@" --key-file "$key" "${admin[@]}"
    # shellcheck disable=SC2034  # for those who source this
    address="tiffin://127.0.0.1:$port/$name?key_file=$key"
}

clean_up() {
    local status=$?
    mountpoint --quiet "$mount_point" && { fusermount3 -u "$mount_point" || umount -l "$mount_point"; }
    stop_server
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
