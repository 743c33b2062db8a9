# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Two links between this network namespace and a server's, each through a bridge in a third one, which can let packets
# disappear without either end's being told. Sourced after tests/remote/lib/server.sh. Only what is made here is changed.
# shellcheck shell=bash

: "${work:?}" "${port?}"
server_namespace=tiffin-server-$$
wire_namespace=tiffin-wire-$$
subnet=10.$((200 + $$ % 50)).$(($$ / 50 % 250))  # .0/30 and .4/30

# Not by `ip netns exec`, which would take a copy of all mounts there: those of other tests would never end.
# shellcheck disable=SC2034  # server.sh starts the server with it
server_prefix=(nsenter --net="/run/netns/$server_namespace")
in_server() { "${server_prefix[@]}" "$@"; }
in_wire() { nsenter --net="/run/netns/$wire_namespace" "$@"; }
link_device() { echo "tf$1-$$"; }
client_address() { echo "$subnet.$(($1 * 4 + 1))"; }
server_address() { echo "$subnet.$(($1 * 4 + 2))"; }
# over_links ADDRESS: a volume's on this host, as it is reached over both links.
over_links() { echo "${1/127.0.0.1:$port/$(server_address 0):$port+$(server_address 1):$port}"; }
# link_argument LINK: as programs of bench/ take a link that they cut.
link_argument() { echo "$(link_device "$1"),$(client_address "$1"),link$1,$(server_address "$1")"; }

# make_links COUNT: ends the script with 77 where there are no namespaces or no filters.
make_links() {
    local link
    { ip netns add "$server_namespace" && ip netns add "$wire_namespace"; } 2>/dev/null ||
        { echo "no network namespaces here"; exit 77; }
    in_wire nft add table netdev cuts 2>/dev/null || { echo "no nftables here"; exit 77; }
    for ((link = 0; link < $1; link++)); do
        in_wire ip link add name "bridge$link" type bridge
        in_wire ip link set "bridge$link" up
        ip link add "$(link_device "$link")" type veth peer name "client$link" netns "$wire_namespace"
        in_server ip link add "link$link" type veth peer name "server$link" netns "$wire_namespace"
        in_wire ip link set "client$link" master "bridge$link" up
        in_wire ip link set "server$link" master "bridge$link" up
        in_wire nft -f - <<END || fail "nft does not make a chain"
table netdev cuts {
    chain client$link {
        type filter hook ingress device "client$link" priority 0
    }
    chain server$link {
        type filter hook ingress device "server$link" priority 0
    }
}
END
        ip address add "$(client_address "$link")/30" dev "$(link_device "$link")"
        ip link set "$(link_device "$link")" up
        in_server ip address add "$(server_address "$link")/30" dev "link$link"
        in_server ip link set "link$link" up
    done
    in_server ip link set lo up
}
# send_unmerged COUNT: what the ends send are single packets, not some that the kernel cuts later, which rules by length would
# take for one.
send_unmerged() {
    local link
    for ((link = 0; link < $1; link++)); do
        ip link set "$(link_device "$link")" gso_max_segs 1
        in_server ip link set "link$link" gso_max_segs 1
    done
}
# Processes that use the links.
loads=()
end_loads() {
    local load
    for load in "${loads[@]}"; do
        kill -KILL "$load" 2>/dev/null || true
    done
}
# Deleting a namespace deletes its ends of pairs, and so the others.
remove_links() {
    ip netns delete "$wire_namespace" 2>/dev/null || true
    ip netns delete "$server_namespace" 2>/dev/null || true
}

# shellcheck disable=SC2034  # for who sources this
cut_kinds=(silent to_server to_client large down_here down_there)
# cut_link LINK KIND: one of these, or narrow, narrow_to_server, narrow_to_client.
cut_link() {
    local rules=()
    case $2 in
        silent) rules=("client$1 drop" "server$1 drop") ;;
        to_server) rules=("client$1 drop") ;;
        to_client) rules=("server$1 drop") ;;
        # Shorter than the shortest segments that a client falls back to.
        large) rules=("client$1 meta length > 400 drop" "server$1 meta length > 400 drop") ;;
        narrow) rules=("client$1 meta length > 1000 drop" "server$1 meta length > 1000 drop") ;;
        narrow_to_server) rules=("client$1 meta length > 1000 drop") ;;
        narrow_to_client) rules=("server$1 meta length > 1000 drop") ;;
        down_here) ip link set "$(link_device "$1")" down ;;
        down_there) in_server ip link set "link$1" down ;;
        *) fail "no such cut: $2" ;;
    esac
    local rule
    for rule in "${rules[@]}"; do echo "add rule netdev cuts $rule"; done | in_wire nft -f -
}
# Of all links.
repair_links() {
    local link
    in_wire nft flush table netdev cuts
    for link in "$@"; do
        ip link set "$(link_device "$link")" up
        in_server ip link set "link$link" up
    done
}
