# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What the scripts with a memory server share: starting one on the loopback, volumes, ending it. Sourced after
# tests/mount/lib/device.sh, whose $work and $mount_point it uses. The script's own first argument is the transport: tcp (the
# default), shm or sdr; or, for addresses of two links, one for each.
# shellcheck shell=bash

# Set by device.sh, which a script sources before this.
: "${bin:?}" "${work:?}" "${mount_point:?}"
[[ -x $bin/tiffind ]] || fail "$bin/tiffind is missing; build it, or set TIFFIN_BIN"

transport=${1:-tcp}
[[ $transport =~ ^(tcp|shm|sdr|sdr\+tcp|tcp\+sdr)$ ]] || fail "the transport is tcp, shm or sdr, not $transport"
keeper=""  # the process that was started; the worker is its child
port=""
listen_host=127.0.0.1
admin=$work/run/admin.sock
server_log=$work/tiffind.log
metrics=""  # where they are served
settings=()  # further lines of the configuration
server_prefix=()  # a program that runs tiffind by exec

# A port that nobody listens on; another program may take it before tiffind does, which then is tried again.
free_port() {
    python3 -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])'
}

write_configuration() {
    cat >"$work/tiffind.toml" <<END
listen = "$listen_host:$port"
metrics = "$metrics"
memory_limit = "6G"
huge_pages = "no"
lock_memory = "no"
state_directory = "$work/state"
runtime_directory = "$work/run"
END
    printf '%s\n' "${settings[@]}" >>"$work/tiffind.toml"
}

server_is_ready() { [[ -S $admin ]] && "$bin/tiffin" volume list --socket "$admin" >/dev/null 2>&1; }

# start_server: on a free port, or again on the one before.
start_server() {
    local _ before=$port
    mkdir -p "$work/state" "$work/run"
    for _ in 1 2 3; do
        [[ -n $port ]] || port=$(free_port)
        write_configuration
        "${server_prefix[@]}" "$bin/tiffind" --config "$work/tiffind.toml" >>"$server_log" 2>&1 &
        keeper=$!
        local i
        for ((i = 0; i < 400; i++)); do
            server_is_ready && return 0
            has_ended "$keeper" && break
            pause 0.05
        done
        end_server || true
        port=$before
    done
    fail "tiffind does not start: $(tail -n 5 "$server_log")"
}

# The process that serves; another one after it was killed.
worker() { pgrep -P "$keeper" | head -n 1; }

# Kills the process that serves, and waits until another one does.
kill_worker() {
    local victim
    victim=$(worker)
    kill -KILL "$victim"
    wait_until has_ended "$victim"
    wait_until server_is_ready
}

# Kills keeper and server, which is what a power failure does to their memory.
kill_server() {
    local victim
    victim=$(worker)
    kill -KILL "$keeper" "$victim"
    wait_until has_ended "$keeper"
    wait_until has_ended "$victim"
    keeper=""
}

# Ends keeper and worker, if they run; with the keeper's exit status.
end_server() {
    [[ -n $keeper ]] || return 0
    local process=$keeper serving
    serving=$(worker || true)
    keeper=""
    [[ -z $serving ]] || kill -CONT "$serving" 2>/dev/null || true
    kill -TERM "$process" 2>/dev/null || true
    local i
    for ((i = 0; i < 1200; i++)); do
        if has_ended "$process" && { [[ -z $serving ]] || has_ended "$serving"; }; then
            wait "$process"
            return
        fi
        pause 0.05
    done
    kill -KILL "$process" ${serving:+"$serving"} 2>/dev/null || true
    return 1
}

stop_server() { end_server || fail "tiffind ended with $?: $(tail -n 5 "$server_log")"; }

# make_volume NAME SIZE [ARGUMENT...]: prints its address.
make_volume() {
    local name=$1 size=$2
    shift 2
    "$bin/tiffin" volume create "$name" "$size" --key-file "$work/$name.key" --socket "$admin" "$@" \
        >"$work/create" 2>&1 || fail "tiffin volume create $name: $(<"$work/create")"
    echo "tiffin://127.0.0.1:$port/$name?key_file=$work/$name.key&transport=$transport&runtime_directory=$work/run"
}

# status_of KEY: what `tiffin status` says of the server's KEY, a regular expression; sum_of KEY: the sum of these numbers.
status_of() { "$bin/tiffin" status "$mount_point" | sed -n "s/^server [^ ]* $1: //p"; }
sum_of() { status_of "$1" | awk '{ sum += $1 } END { print sum + 0 }'; }

# refuses TEXT COMMAND...: the command fails and says the text; `refusal` is all it says.
refuses() {
    local text=$1
    shift
    ! refusal=$("$@" 2>&1) || fail "succeeded: $*"
    [[ $refusal == *"$text"* ]] || fail "$* said '$refusal', expected '$text'"
}

# clean_up_server STATUS: sets it if the server does not end as it should.
clean_up_server() {
    local -n test_status=$1
    end_server && return 0
    [[ $test_status -ne 0 ]] || { echo "FAILED: tiffind does not end well: $(tail -n 5 "$server_log")" >&2; test_status=1; }
}

server_clean_up() {
    local status=$?
    trap - EXIT
    clean_up_server status
    clean_up "$status"
}
trap server_clean_up EXIT
