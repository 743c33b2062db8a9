#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The examples "send" and "receive" on an emulated link that loses a twentieth of all packets, in both directions, delays
# and reorders them and doubles some.
#
# usage: transfer.sh FOLDER_WITH_THE_PROGRAMS LINK_EMULATOR [--namespaces]
#
#   --namespaces   the two programs and the emulator each in a network of its own (as root); exit status 77: not possible
set -euo pipefail

programs=$1
emulator=$2
folder=$(mktemp -d)
processes=()
finish() {
    for process in "${processes[@]}"; do
        kill "$process" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap finish EXIT

link=(loss=0.05 burst=2 delay_ms=2 hold=0.02 held_ms=1 duplicate=0.01)
sender=()   # the commands by which to enter the network of each
middle=()
receiver=()
sender_emulator=127.0.0.1     # the emulator as each end sees it
receiver_emulator=127.0.0.1
receiver_address=127.0.0.1
port=$((20000 + $$ % 10000))

# A network that lives as long as a process: its number in `network`.
make_network() {
    rm -f "$folder/is_made"
    unshare --net sh -c "echo >'$folder/is_made' && exec sleep 600" &
    network=$!
    processes+=("$network")
    local waited=0
    until [[ -s $folder/is_made ]]; do
        waited=$((waited + 1))
        if [[ $waited -gt 600 ]] || ! kill -0 "$network" 2>/dev/null; then
            return 1
        fi
        sleep 0.05
    done
}

in_network() {  # in_network PROCESS command...
    nsenter --net="/proc/$1/ns/net" "${@:2}"
}

# join PROCESS ADDRESS: a cable between its network and the emulator's.
join() {
    in_network "$middle_network" ip link add "to$1" type veth peer name cable netns "$1"
    in_network "$middle_network" ip address add "$2.1/24" dev "to$1"
    in_network "$middle_network" ip link set dev "to$1" up
    in_network "$1" ip address add "$2.2/24" dev cable
    in_network "$1" ip link set dev cable up
    in_network "$1" ip route add default via "$2.1"
}

make_networks() {
    command -v ip >/dev/null || { echo "no program 'ip'"; return 1; }
    [[ $(id -u) -eq 0 ]] || { echo "not root"; return 1; }
    make_network && sender_network=$network &&
        make_network && receiver_network=$network &&
        make_network && middle_network=$network
}

if [[ ${3-} == --namespaces ]]; then
    if ! make_networks >"$folder/why" 2>&1; then
        echo "not run: between network namespaces: they cannot be made here ($(tail -n 1 "$folder/why"))"
        exit 77
    fi
    join "$sender_network" 192.0.2
    join "$receiver_network" 198.51.100
    # What the two programs say over TCP goes straight through.
    if ! in_network "$middle_network" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' 2>/dev/null; then
        echo "not run: between network namespaces: /proc/sys cannot be written here"
        exit 77
    fi
    sender=(nsenter "--net=/proc/$sender_network/ns/net")
    middle=(nsenter "--net=/proc/$middle_network/ns/net")
    receiver=(nsenter "--net=/proc/$receiver_network/ns/net")
    sender_emulator=192.0.2.1
    receiver_emulator=198.51.100.1
    receiver_address=198.51.100.2
fi

"${middle[@]}" "$emulator" "${link[@]}" >"$folder/ports" 2>"$folder/counters" &
emulator_process=$!
processes+=("$emulator_process")
waited=0
until [[ -s $folder/ports ]]; do
    waited=$((waited + 1))
    [[ $waited -le 600 ]] || { echo "the emulator does not start" >&2; exit 1; }
    sleep 0.1
done
read -r _ near _ far <"$folder/ports"

head -c 5000000 /dev/urandom >"$folder/sent"
"${receiver[@]}" "$programs/sdr_example_receive" "$port" "$receiver_emulator:$far" >"$folder/received" &
receiver_process=$!
processes+=("$receiver_process")
"${sender[@]}" "$programs/sdr_example_send" "$receiver_address:$port" "$sender_emulator:$near" <"$folder/sent"
wait "$receiver_process"
cmp "$folder/sent" "$folder/received"

# And they did take that way.
kill "$emulator_process"
wait "$emulator_process"
cat "$folder/counters"
[[ $(sed -E 's/.* lost ([0-9]+),.*/\1/' "$folder/counters") -gt 0 ]] || { echo "nothing was lost" >&2; exit 1; }
