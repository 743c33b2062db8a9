#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What tests/vm/rdma runs in its virtual machine, as root: two RDMA devices on a veth pair, and the transports rc, and
# sdr over UC queue pairs, between them.
#
# usage: rdma_guest.sh BUILD_FOLDER [STEP...]
set -eEuo pipefail
build=$1
shift
steps=("$@")
bin=$build/bin
client=10.9.0.1
server=10.9.0.2
# Of a second link.
other_client=10.9.1.1
other_server=10.9.1.2

say() { printf '%s: %s\n' "$(cut -d' ' -f1 /proc/uptime)" "$*"; }

# What the kernel forgets when a link goes down. connect_ends [DEVICE CLIENT SERVER TABLE]
connect_ends() {
    local device=${1:-v} from=${2:-$client} to=${3:-$server} table=${4:-100}
    ip route replace "$to" dev "${device}0" src "$from" table "$table"
    ip route replace "$from" dev "${device}1" src "$to" table $((table + 1))
    ip neighbour replace "$to" lladdr "$(cat "/sys/class/net/${device}1/address")" dev "${device}0" nud permanent
    ip neighbour replace "$from" lladdr "$(cat "/sys/class/net/${device}0/address")" dev "${device}1" nud permanent
}

# make_link DEVICE CLIENT SERVER TABLE RDMA_DEVICE RDMA_DEVICE
make_link() {
    local device end
    ip link add "${1}0" type veth peer name "${1}1"
    ip address add "$2/24" dev "${1}0"
    ip address add "$3/24" dev "${1}1"
    for end in 0 1; do
        device=$1$end
        echo 0 >"/proc/sys/net/ipv4/conf/$device/rp_filter"
        echo 1 >"/proc/sys/net/ipv4/conf/$device/accept_local"
        ip link set "$device" up
        ip rule add pref $((5 + end)) iif "$device" lookup local
    done
    ip rule add pref 10 to "$3" lookup "$4"
    ip rule add pref 11 to "$2" lookup $(($4 + 1))
    connect_ends "$1" "$2" "$3" "$4"
    rdma link add "$5" type rxe netdev "${1}0"
    rdma link add "$6" type rxe netdev "${1}1"
}

# Both ends are in one network namespace: rxe does not receive in another one. The kernel would take the short
# way between its own addresses, so the table of local addresses is looked up after rules that send each peer's
# address out of the other end.
make_devices() {
    ip link set lo up
    # RDMA expects a network that does not drop: rxe's answer to one read of 1 MiB is 1024 packets, and with a backlog
    # of 1000 each large read costs time-outs, as many of them in a row as break the connection on a busy machine.
    echo 65536 >/proc/sys/net/core/netdev_max_backlog
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
    ip rule add pref 200 lookup local
    ip rule del pref 0
    make_link v $client $server 100 rxe0 rxe1
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
listen = "0.0.0.0:4847"
metrics = "127.0.0.1:9847"
memory_limit = "2G"
huge_pages = "no"
lock_memory = "no"
state_directory = "$work/state"
runtime_directory = "$work/run"
END
    "$bin/tiffind" --config "$work/tiffind.toml" >>"$work/tiffind.log" 2>&1 &
    keeper=$!
    wait_until answers
}

# make_volume NAME SIZE [OPTIONS]: $address is how clients name it. It is there until the step ends.
volumes=()
make_volume() {
    volumes+=("$1")
    "$bin/tiffin" volume create "$1" "$2" --key-file "$work/$1.key" "${admin[@]}" >/dev/null
    address="tiffin://$server/$1?key_file=$work/$1.key&${3:-transport=rc}"
}
# All of them together would be more than the server's memory.
delete_volumes() {
    local volume
    for volume in "${volumes[@]}"; do
        "$bin/tiffin" volume delete "$volume" "${admin[@]}" >/dev/null
    done
    volumes=()
}
over_uc="transport=sdr&sdr_carrier=uc"

lose_packets() {
    local device
    for device in v0 v1; do
        tc qdisc add dev $device root netem loss "$1"
    done
}
lose_no_packets() {
    local device
    for device in v0 v1; do
        tc qdisc del dev $device root
    done
}

# Packets of the UC carrier that this server has sent and received; since it was started last.
uc_packets() {
    local line sum=0
    exec {metrics}<>/dev/tcp/127.0.0.1/9847
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$metrics"
    while read -r line; do
        [[ $line != "tiffind_sdr_uc_packets_total{"* ]] || sum=$((sum + $(tr -d '\r' <<<"${line##* }")))
    done <&"$metrics"
    exec {metrics}>&-
    echo "$sum"
}

# ---- Steps -----------------------------------------------------------------------------------------------------

# Both programs poll; prints the median in microseconds: there and back for a read, one way for a write.
perftest() {
    local program=$1 size=$2
    "$program" -d rxe1 -x 1 -s "$size" -n 2000 -F >"$work/perftest.log" 2>&1 &
    local other=$!
    wait_until listens 18515
    "$program" -d rxe0 -x 1 -s "$size" -n 2000 -F $server >"$work/$program" 2>&1 ||
        fail "$program: $(<"$work/$program")"
    wait "$other"
    awk -v size="$size" '$1 == size { print $5 }' "$work/$program"
}

listens() { [[ -n $(ss -Hltn "sport = :$1") ]]; }

step_verbs() {
    "$bin/vm_verbs_test" --gtest_brief=1 --gtest_filter='-*Lossy*' $client $server || fail "vm_verbs_test"
}

# SDR over unreliable connections, on links that lose packets.
step_uc() {
    lose_packets 3%
    "$bin/vm_verbs_test" --gtest_brief=1 --gtest_filter='*Lossy*' $client $server || fail "vm_verbs_test, lossy"
    lose_no_packets
}

# In turns: the machine is emulated, and twice as fast at one time as at another.
step_perf() {
    make_volume perf 64M
    address+="&busy_poll_us=1000"  # perftest polls all the time
    local operation turn ours theirs ratios
    for operation in read write; do
        ratios=()
        for turn in 1 2 3 4 5 6 7 8 9; do
            theirs=$(perftest ib_${operation}_lat 4096)
            ours=$("$bin/tiffin" perf "$address" --operation $operation --overwrite --no-baseline --duration 1 |
                awk '$1 == "rc" { print $6 }')
            ratios+=("$(awk -v ours="$ours" -v theirs="$theirs" 'BEGIN { printf "%.2f", ours / theirs }')")
            say "$operation 4096, turn $turn, medians in us: rc $ours, ib_${operation}_lat $theirs"
        done
        say "$operation 4096, rc / ib_${operation}_lat: median $(printf '%s\n' "${ratios[@]}" | sort -g | sed -n 5p)" \
            "of ${ratios[*]}"
    done
}

of() { "$bin/tiffin" status "$1" | sed -n "s/^server [^ ]* $2: //p"; }
is_promised() { [[ $(wc -l <"$work/promised") -ge $1 ]]; }
promised() { wc -l <"$work/promised"; }

write_files() {
    local number
    mkdir -p "$1/files"
    for ((number = 1; ; number++)); do
        head -c $((20000 + RANDOM)) /dev/urandom >"$work/part" || return 0
        cp "$work/part" "$1/files/$number" 2>/dev/null || return 0
        sync "$1/files/$number" 2>/dev/null || return 0
        echo "$(sha256sum <"$work/part") $number" >>"$work/promised"
    done
}
check_files() {
    local sum number count=0
    while read -r sum _ number; do
        [[ $(sha256sum <"$1/files/$number") == "$sum  -" ]] || fail "files/$number has another content"
        count=$((count + 1))
    done <"$work/promised"
    say "$count files were promised and are there"
}

# A server that is killed, a link that goes down, and a takeover, while files are written; by the transport that
# `tiffin status` calls NAME.
mount_under_faults() {
    local volume=$1 name=$2 options=$3
    make_volume "$volume" 256M "$options"
    local first=$work/$volume.first second=$work/$volume.second
    mkdir "$first" "$second"
    is_carried() { [[ $(of "$first" transport) == "$name" || $(of "$first" transport) == "$name "* ]]; }
    "$bin/mkfs.tiffin" -q -f "$address"
    "$bin/mount.tiffin" "$address" "$first" -o "log=$first.log"
    is_carried || fail "status: $("$bin/tiffin" status "$first")"
    : >"$work/promised"
    write_files "$first" &
    local writer=$!
    wait_until is_promised 3

    say "tiffind killed while files are written"
    local victim
    victim=$(worker)
    kill -KILL "$victim"
    wait_until is_promised $(($(promised) + 3))
    [[ $(worker) != "$victim" ]] || fail "the worker is the same"

    say "the link down and up"
    ip link set v0 down
    sleep 2
    ip link set v0 up
    connect_ends
    wait_until is_promised $(($(promised) + 3))
    [[ $(of "$first" reconnections) -ge 2 ]] || fail "status: $("$bin/tiffin" status "$first")"
    wait_until is_carried

    say "a takeover while the old holder writes"
    "$bin/mount.tiffin" "$address" "$second" -o "force,log=$second.log" || fail "no takeover"
    cp "$work/promised" "$work/promised.before"
    echo mine >"$second/mine"
    sync "$second/mine"
    wait "$writer"
    ! { echo more >"$first/more" && sync "$first/more"; } 2>/dev/null || fail "the old holder still writes"
    grep -q "another client has taken the volume" "$first.log" || fail "the old holder's log does not say so"
    check_files "$second"
    umount -l "$first"
    umount "$second"
    wait_until no_file_systems
    "$bin/fsck.tiffin" -n -f --data "$address" >"$work/fsck" 2>&1 || fail "fsck.tiffin: $(<"$work/fsck")"
}
step_mount() { mount_under_faults books rc transport=rc; }

# ---- Two links -------------------------------------------------------------------------------------------------

over_links() { echo "${1/$server/$server+$other_server}"; }
# The state of both links, and of which transport, of the file system or of the bank.
states_of() {
    if [[ $1 == files ]]; then
        of "$work/linked" 'link [12]' | tr '\n' ' '
    else
        sed 's/^[0-9]* [0-9]* //; s/ *$/ /' "$work/progress-bank"
    fi
}
are_well() {
    local states
    states=$(states_of "$1")
    [[ $states == "active ready " || $states == "ready active " ]]
}
round_of() { sed 's/ .*//' "$work/progress-$1" 2>/dev/null || echo 0; }
note_rounds() {
    before=()
    local load
    for load in files sqlite bank; do before+=("$(round_of $load)"); done
}
have_gone_on() {
    local load index=0
    for load in files sqlite bank; do
        kill -0 "${load_processes[index]}" || fail "$load has ended: $(<"$work/said-$load")"
        [[ $(round_of $load) -ge $((before[index] + 2)) ]] || return 1
        index=$((index + 1))
    done
}
# One link after another loses all packets, in both directions or one, while files and SQLite are written and read, and a
# bank counts.
cut_links() {
    local cuts=$1 i device load kind victim kinds=(0 1 '0 1')
    make_link w $other_client $other_server 110 rxe2 rxe3
    make_volume bank 16M
    local bank_address
    bank_address=$(over_links "$address")
    make_volume linked 192M
    address=$(over_links "$address")
    mkdir "$work/linked"
    "$bin/mkfs.tiffin" -q -f "$address"
    "$bin/mount.tiffin" "$address" "$work/linked" -o "log=$work/linked.log"
    load_processes=()
    rm -f "$work/stop"
    for load in files sqlite; do
        python3 /mnt/tests/remote/lib/failover_load.py $load "$work/linked" "$work/progress-$load" "$work/stop" "$work/calm" \
            >"$work/said-$load" 2>&1 &
        load_processes+=($!)
    done
    "$build/tests/remote/bank" "$bank_address" "$work/progress-bank" "$work/stop" "$work/calm" >"$work/said-bank" 2>&1 &
    load_processes+=($!)
    before=(0 0 0)
    wait_until have_gone_on
    for ((i = 0; i < cuts; i++)); do
        wait_until are_well files
        wait_until are_well bank
        victim=v
        [[ $(states_of files) == active* ]] || victim=w
        kind=${kinds[$((i % 3))]}
        say "cut $i: link $victim, ends $kind"
        for device in $kind; do tc qdisc add dev "$victim$device" root netem loss 100%; done
        note_rounds
        wait_until have_gone_on
        for device in $kind; do tc qdisc del dev "$victim$device" root; done
    done
    touch "$work/stop"
    for ((i = 0; i < 3; i++)); do
        wait "${load_processes[i]}" || fail "$(cat "$work"/said-*)"
    done
    cat "$work"/said-*
    "$bin/tiffin" status "$work/linked" | grep -E 'failovers|resent|recovered|reconnections|link' || true
    [[ $(of "$work/linked" failovers) -ge $((cuts * 8 / 10)) ]] || fail "$(of "$work/linked" failovers) failovers"
    # A machine that is emulated by a busy one may get nowhere for five seconds.
    [[ $(of "$work/linked" reconnections) -le $((cuts / 3)) ]] || fail "$(of "$work/linked" reconnections) reconnections"
    umount "$work/linked"
    wait_until no_file_systems
    "$bin/fsck.tiffin" -n -f --data "$address" >"$work/fsck" 2>&1 || fail "fsck.tiffin: $(<"$work/fsck")"
    delete_volumes  # the server has their memory registered with the device, which could not go
    rdma link delete rxe2
    rdma link delete rxe3
    ip link del w0
}
step_links() { cut_links 24; }
step_many_links() { cut_links 100; }

# Requests as messages of SDR over UC queue pairs, on links that lose packets.
step_sdr_uc() {
    lose_packets 1%
    mount_under_faults letters sdr-uc "$over_uc"
    lose_no_packets
}

step_sdr_uc_input() {
    local before packets
    lose_packets 1%
    before=$(uc_packets)
    make_volume letters_trees 160M "$over_uc"
    TIFFIN_BIN=$bin TMPDIR=$work /mnt/tests/mount/real_input.sh "$address" --tiny || fail "real_input.sh"
    packets=$(($(uc_packets) - before))
    say "real_input.sh: $packets packets of the UC carrier at the server"
    [[ $packets -gt 1000 ]] || fail "the UC carrier did not carry it"
    "$bin/fsck.tiffin" -n -f --data "$address" >"$work/fsck" 2>&1 || fail "fsck.tiffin: $(<"$work/fsck")"
    lose_no_packets
}

step_sdr_uc_perf() {
    make_volume letters_perf 64M "$over_uc"
    local operation
    for operation in read write; do
        "$bin/tiffin" perf "$address" --operation $operation --overwrite --no-baseline --duration 5 |
            grep '^sdr'
    done
}
no_file_systems() { ! pgrep -f mount.tiffin; }

step_real_input() {
    make_volume trees 160M
    TIFFIN_BIN=$bin TMPDIR=$work /mnt/tests/mount/real_input.sh "$address" --tiny || fail "real_input.sh"
}

# Without RDMA devices, and on links that lose packets: TCP at first, and a trial then. Which way is the faster one in a
# machine that is emulated, the trial tells, not this.
step_choice() {
    local device mount=$work/choice files=0
    rdma link delete rxe0
    rdma link delete rxe1
    make_volume choice 64M
    address=${address%rc}auto
    "$bin/mkfs.tiffin" -q -f "$address"
    mkdir "$mount"
    "$bin/mount.tiffin" "$address" "$mount" -o "log=$work/choice.log"
    [[ $(of "$mount" transport) == tcp* ]] || fail "status: $("$bin/tiffin" status "$mount")"
    for device in v0 v1; do
        tc qdisc add dev $device root netem loss 2% delay 1ms
    done
    while [[ $(of "$mount" transport) != *"in a trial)" ]]; do
        files=$((files + 1))
        [[ $files -le 3000 ]] || fail "status: $("$bin/tiffin" status "$mount")"
        head -c 20000 /dev/urandom >"$mount/$((files % 100))"
        sync "$mount/$((files % 100))"
    done
    grep "in a trial" "$work/choice.log" || fail "nothing in the log"
    say "after $files files: $(of "$mount" transport)"
    for device in v0 v1; do
        tc qdisc del dev $device root
    done
    umount "$mount"
    wait_until no_file_systems
    "$bin/fsck.tiffin" -n -f --data "$address" >"$work/fsck" 2>&1 || fail "fsck.tiffin: $(<"$work/fsck")"
}

trap 'fail "line $LINENO"' ERR
make_devices
mkdir -p "$work"
start_server
if [[ ${#steps[@]} -eq 0 ]]; then
    # perf by name only: of an emulated machine, beside other work, it says nothing. So is many_links, which takes long.
    # choice takes the devices away.
    steps=(verbs uc mount links real_input sdr_uc sdr_uc_input choice)
fi
for step in "${steps[@]}"; do
    say "step $step"
    "step_$step"
    delete_volumes
done
say "all steps passed"
