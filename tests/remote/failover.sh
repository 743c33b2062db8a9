#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A mounted file system and a bank in remote memory, each a session over two links. One link after another falls silent (in
# both directions or one, or for large packets only) or goes down at either end, for a moment or until it is given up, while
# files are written and read, SQLite moves money, and the bank does by atomics: all go on over the other link, nothing is lost
# or done twice, nothing fails, and the sessions stay the same.
#
# usage: failover.sh tcp|sdr|sdr+tcp|tcp+sdr BANK [CUTS [standby|spread]]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
bank=${2:?usage: failover.sh tcp|sdr|sdr+tcp|tcp+sdr BANK [CUTS [standby|spread]]}
cuts=${3:-100}
policy=${4:-standby}
need_programs ip nft python3

# Which load has stopped, and on which link.
say_states() {
    local load
    for load in files sqlite bank; do echo "progress of $load: $(cat "$work/progress-$load")"; done
    [[ ${#loads[@]} -eq 0 ]] || ps -o pid,stat,etimes,args -p "${loads[*]}" || true
    timeout 10 "$bin/tiffin" status "$mount_point" | grep -E ' (link|reconnections)' || true
}
failover_clean_up() {
    local status=$?
    trap - EXIT
    [[ $status -eq 0 ]] || say_states
    end_loads
    repair_links 0 1 2>/dev/null || true
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap failover_clean_up EXIT
make_links 2

listen_host=0.0.0.0
start_server
device_address=$(make_volume files 256M)
bank_address=$(make_volume bank 16M)
use_device "$(over_links "$device_address")&links=$policy"
mount_device

load_names=(files sqlite bank)
for load in files sqlite; do
    python3 "$(dirname "$0")/lib/failover_load.py" "$load" "$mount_point" "$work/progress-$load" "$work/stop" "$work/calm" \
        >"$work/said-$load" 2>&1 &
    loads+=($!)
done
"$bank" "$(over_links "$bank_address")&links=$policy" "$work/progress-bank" "$work/stop" "$work/calm" >"$work/said-bank" 2>&1 &
loads+=($!)

# The state of both links, of the file system or of the bank.
states_of() {
    if [[ $1 == files ]]; then
        status_of 'link [12]' | tr '\n' ' '
    else
        sed 's/^[0-9]* [0-9]* //; s/ *$/ /' "$work/progress-bank"
    fi
}
failovers_of() {
    if [[ $1 == files ]]; then status_of failovers; else cut -d' ' -f2 "$work/progress-bank"; fi
}
are_well() {
    local states
    states=$(states_of "$1")
    if [[ $policy == spread ]]; then
        # One that has failed often takes no requests for a while.
        [[ $states == "active active " || $states == "active ready " || $states == "ready active " ]]
    else
        [[ $states == "active ready " || $states == "ready active " ]]
    fi
}
# leaves USER LINK: the cut has been noticed.
leaves() {
    local states
    read -ra states <<<"$(states_of "$1")"
    [[ ${states[$2]:-active} != active ]]
}
# Without a process each time it is asked: sets `rounds`.
read_rounds() { read -r rounds _ 2>/dev/null <"$work/progress-$1" || rounds=0; }
# Those that have ended fail at once.
have_gone_on() {
    local index rounds
    for index in 0 1 2; do
        ! has_ended "${loads[index]}" || fail "${load_names[index]} has ended: $(<"$work/said-${load_names[index]}")"
        read_rounds "${load_names[index]}"
        [[ $rounds -ge $((before[index] + 2)) ]] || return 1
    done
}
note_rounds() {
    before=()
    local load rounds
    for load in "${load_names[@]}"; do
        read_rounds "$load"
        before+=("$rounds")
    done
}

before=(0 0 0)
wait_until have_gone_on
given_up=0
for ((i = 0; i < cuts; i++)); do
    # They only go on while a link rests after its failure, which takes seconds.
    : >"$work/calm"
    poll_s=0.2 wait_until are_well files
    poll_s=0.2 wait_until are_well bank
    rm "$work/calm"
    note_rounds
    wait_until have_gone_on
    # The link that one of them uses; what the other one uses may be the same.
    user=files
    [[ $((i % 2)) -eq 0 ]] || user=bank
    victim=0
    case $(states_of $user) in
        "active active "*) victim=$((i / 2 % 2)) ;;
        active*) ;;
        *) victim=1 ;;
    esac
    kind=${cut_kinds[$((i / 2 % ${#cut_kinds[@]}))]}
    say "cut $i: link $((victim + 1)) of $user, $kind"
    cut_link $victim "$kind"
    wait_until leaves $user $victim
    note_rounds
    wait_until have_gone_on
    case $((i % 7)) in
        0 | 1 | 2) ;;
        3 | 4 | 5) sleep 0.$((RANDOM % 4)) ;;
        6) sleep 1.3; given_up=$((given_up + 1)) ;;
    esac
    note_rounds
    wait_until have_gone_on
    repair_links $victim
done
touch "$work/stop"
for index in 0 1 2; do
    wait "${loads[index]}" || fail "${load_names[index]}: $(<"$work/said-${load_names[index]}")"
    say "$(<"$work/said-${load_names[index]}")"
done
loads=()
say "$("$bin/tiffin" status "$mount_point" | sed -n 's/^server [^ ]* \(.*\(failovers\|resent\|recovered\|link\).*\)/\1/p' | tr '\n' ';')"
# None, but on a machine that is busy enough to make the good link look silent just before the other one is cut.
[[ $(status_of reconnections) -le $((1 + cuts / 10)) ]] || fail "$(status_of reconnections) reconnections"
# One may have gone back to the link that it prefers just before its link was cut.
failovers=$(($(failovers_of files) + $(failovers_of bank)))
[[ $failovers -ge $((cuts * 9 / 10)) ]] || fail "$failovers failovers"
failures=$(sum_of 'link [12] failures')
[[ $failures -ge $((given_up / 3)) ]] || fail "links were given up $failures times"
# What each link says adds up to what the session says, and programs can read it.
for key in failovers 'resent operations' 'resent bytes' 'recovered operations'; do
    by_link=$(sum_of "link [12] $key")
    [[ $by_link == "$(status_of "$key")" ]] || fail "$key: $(status_of "$key"), by link $by_link"
done
"$bin/tiffin" status --json "$mount_point" >"$work/status.json"
python3 - "$work/status.json" "$(status_of failovers)" <<'END' || fail "tiffin status --json: $(<"$work/status.json")"
import json, sys
with open(sys.argv[1]) as file:
    document = json.load(file)
links = [value for key, value in document.items() if key.startswith("server ") and " link " in key and key.endswith(" failovers")]
assert len(links) == 2 and sum(links) == int(sys.argv[2])
END
unmount_device
check_device "after $cuts cuts"
stop_server
