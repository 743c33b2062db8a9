#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A mounted file system over two links, each a pair of interfaces between this network namespace and the server's. They fall
# silent in both directions or one, or go down, while files are written and read: nothing is lost, nothing fails, and the
# session stays the same.
#
# usage: failover.sh [tcp] [CUTS]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs ip python3
cuts=${2:-8}

namespace=tiffin-$$
subnet=10.$((200 + $$ % 50)).$(($$ / 50 % 250))  # .0/30 and .4/30
ip netns add "$namespace" 2>/dev/null || { echo "no network namespaces here"; exit 77; }
failover_clean_up() {
    local status=$?
    trap - EXIT
    clean_up_server status
    ip link delete "tf0-$$" 2>/dev/null || true
    ip link delete "tf1-$$" 2>/dev/null || true
    ip netns delete "$namespace" 2>/dev/null || true
    clean_up "$status"
}
trap failover_clean_up EXIT

in_server() { ip netns exec "$namespace" "$@"; }
ours() { echo "$subnet.$(($1 * 4 + 1))"; }
theirs() { echo "$subnet.$(($1 * 4 + 2))"; }
mac_of() { "${@:2}" cat "/sys/class/net/$1/address"; }

for link in 0 1; do
    ip link add "tf$link-$$" type veth peer name link$link netns "$namespace"
    ip address add "$(ours $link)/30" dev "tf$link-$$"
    ip link set "tf$link-$$" up
    in_server ip address add "$(theirs $link)/30" dev link$link
    in_server ip link set link$link up
    our_mac[link]=$(mac_of "tf$link-$$")
    their_mac[link]=$(in_server ip -o link show link$link | sed 's/.*link.ether \([^ ]*\).*/\1/')
done
in_server ip link set lo up

# What is sent to an address that no interface has is dropped, and nobody is told.
nowhere=02:00:00:00:00:01
set_to_server() { ip neigh replace "$(theirs "$1")" lladdr "$2" dev "tf$1-$$" nud permanent; }
set_to_client() { in_server ip neigh replace "$(ours "$1")" lladdr "$2" dev "link$1" nud permanent; }
cut() {
    case $2 in
        silent) set_to_server "$1" $nowhere && set_to_client "$1" $nowhere ;;
        to_server) set_to_server "$1" $nowhere ;;
        to_client) set_to_client "$1" $nowhere ;;
        down) in_server ip link set "link$1" down ;;
    esac
}
repair() {
    in_server ip link set "link$1" up
    set_to_server "$1" "${their_mac[$1]}"
    set_to_client "$1" "${our_mac[$1]}"
}
for link in 0 1; do repair $link; done

listen_host=0.0.0.0
server_prefix=(ip netns exec "$namespace")
start_server
address=$(make_volume v 256M)
address=${address/127.0.0.1:$port/$(theirs 0):$port+$(theirs 1):$port}
use_device "$address"
mount_device

status_of() { "$bin/tiffin" status "$mount_point" | sed -n "s/^server [^ ]* $1: //p"; }
link_is() { [[ $(status_of "link $1") == $2,* ]]; }
wait_until link_is 2 ready

# Counters in files, synced after each round; what is read back is what was written.
python3 - "$mount_point" "$work/stop" >"$work/writer" 2>&1 <<'END' &
import os, sys
folder, stop = sys.argv[1:]
number = 0
while not os.path.exists(stop):
    number += 1
    for name in ("a", "b", "c"):
        path = os.path.join(folder, name)
        data = f"{name} {number}\n".encode() * 4096
        with open(path + ".new", "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        with open(descriptor, "rb") as file:
            assert file.read() == data, f"{path} differs in round {number}"
print(number)
END
writer=$!

kinds=(silent to_server to_client down)
round_number() {
    local number=""
    read -r _ number <"$mount_point/a" || true
    echo "${number:-0}"
} 2>/dev/null
has_gone_on() { [[ $(round_number) -gt $1 ]]; }
wait_until has_gone_on 0
for ((i = 0; i < cuts; i++)); do
    active=0
    ! link_is 2 active || active=1
    say "cut $i: link $((active + 1)), ${kinds[i % 4]}"
    before=$(round_number)
    cut $active "${kinds[i % 4]}"
    wait_until has_gone_on $((before + 1))
    ! has_ended $writer || fail "the writer has ended: $(<"$work/writer")"
    repair $active
    other=$((2 - active))  # counted from 1
    wait_until eval "! link_is $((active + 1)) down && ! link_is $((active + 1)) joining"
    link_is $other active || link_is $other ready || fail "link $other is $(status_of "link $other")"
done
touch "$work/stop"
wait $writer || fail "the writer: $(<"$work/writer")"
say "$(<"$work/writer") rounds; $("$bin/tiffin" status "$mount_point" | grep -E 'failovers|resent|recovered|link ' | tr '\n' ';')"
[[ $(status_of reconnections) == 0 ]] || fail "$(status_of reconnections) reconnections"
[[ $(status_of failovers) -ge $((cuts / 2)) ]] || fail "$(status_of failovers) failovers"
unmount_device
check_device "after $cuts cuts"
stop_server
