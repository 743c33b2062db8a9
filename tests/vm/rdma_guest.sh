#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What tests/vm/rdma runs in its virtual machine, as root: two RDMA devices on a veth pair, and the transport rc
# between them.
#
# usage: rdma_guest.sh BUILD_FOLDER [STEP...]
set -euo pipefail
build=$1
shift
steps=("$@")
bin=$build/bin
client=10.9.0.1
server=10.9.0.2

say() { printf '%s: %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }

# Both ends are in one network namespace: rxe does not receive in another one. The kernel would take the short
# way between its own addresses, so the table of local addresses is looked up after rules that send each peer's
# address out of the other end.
make_devices() {
    ip link set lo up
    ip link add v0 type veth peer name v1
    ip address add $client/24 dev v0
    ip address add $server/24 dev v1
    local device
    for device in all v0 v1; do
        echo 0 >/proc/sys/net/ipv4/conf/$device/rp_filter
        echo 1 >/proc/sys/net/ipv4/conf/$device/accept_local
    done
    ip link set v0 up
    ip link set v1 up
    ip rule add pref 5 iif v0 lookup local
    ip rule add pref 6 iif v1 lookup local
    ip rule add pref 10 to $server lookup 100
    ip rule add pref 11 to $client lookup 101
    ip route add $server dev v0 src $client table 100
    ip route add $client dev v1 src $server table 101
    ip rule add pref 200 lookup local
    ip rule del pref 0
    ip neighbour add $server lladdr "$(cat /sys/class/net/v1/address)" dev v0 nud permanent
    ip neighbour add $client lladdr "$(cat /sys/class/net/v0/address)" dev v1 nud permanent
    rdma link add rxe0 type rxe netdev v0
    rdma link add rxe1 type rxe netdev v1
    rdma link
    ibv_devinfo | grep -E 'hca_id|state|active_mtu' || true
}

# ---- A server and volumes ------------------------------------------------------------------------------------

work=/tmp/rdma
admin=(--socket "$work/run/admin.sock")
keeper=""

fail() {
    say "FAILED: $*"
    tail -n 20 "$work"/*.log 2>/dev/null || true
    exit 1
}

# wait_until COMMAND...: up to a minute.
wait_until() {
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    fail "waited in vain: $*"
}

answers() { "$bin/tiffin" volume list "${admin[@]}"; }
worker() { pgrep --parent "$keeper"; }

start_server() {
    mkdir -p "$work/run" "$work/state"
    cat >"$work/tiffind.toml" <<END
listen = "$server:4847"
metrics = ""
memory_limit = "1G"
huge_pages = "no"
lock_memory = "no"
state_directory = "$work/state"
runtime_directory = "$work/run"
END
    "$bin/tiffind" --config "$work/tiffind.toml" >>"$work/tiffind.log" 2>&1 &
    keeper=$!
    wait_until answers
}

# make_volume NAME SIZE: $address is how clients name it.
make_volume() {
    "$bin/tiffin" volume create "$1" "$2" --key-file "$work/$1.key" "${admin[@]}" >/dev/null
    address="tiffin://$server/$1?key_file=$work/$1.key&transport=rc"
}

# ---- Steps -----------------------------------------------------------------------------------------------------

# Both programs poll; one line of each: "typical" microseconds, one way for a write, there and back for a read.
perftest() {
    local program=$1 size=$2
    "$program" -d rxe1 -x 1 -s "$size" -n 1000 -F >"$work/perftest.log" 2>&1 &
    local other=$!
    sleep 3
    "$program" -d rxe0 -x 1 -s "$size" -n 1000 -F $server >"$work/$program" 2>&1 ||
        fail "$program: $(<"$work/$program")"
    wait "$other"
    awk -v size="$size" '$1 == size { print $5 }' "$work/$program"
}

step_perf() {
    make_volume perf 64M
    local operation
    for operation in read write; do
        say "ib_${operation}_lat 4096: $(perftest ib_${operation}_lat 4096) us"
        "$bin/tiffin" perf "$address" --operation $operation --overwrite --no-baseline --duration 5
    done
}

make_devices
mkdir -p "$work"
start_server
if [[ ${#steps[@]} -eq 0 ]]; then
    steps=(perf)
fi
for step in "${steps[@]}"; do
    say "step $step"
    "step_$step"
done
say "all steps passed"
