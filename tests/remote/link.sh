#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Links are added to a mounted volume, and taken away, with tiffin link, while files are written and read and SQLite moves
# money: nothing fails, nothing is sent again, and the session stays the same.
#
# usage: link.sh [tcp|sdr] [one]   # one: the volume is mounted over one link, and gets the second one then
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
need_programs ip nft python3

link_clean_up() {
    local status=$?
    trap - EXIT
    end_loads
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap link_clean_up EXIT
make_links 3

listen_host=0.0.0.0
start_server
address=$(make_volume links 256M)
link_address() { echo "$(server_address "$1"):$port"; }
begins_with=${2:-two}
if [[ $begins_with == one ]]; then
    use_device "${address/127.0.0.1:$port/$(server_address 0):$port}"
else
    use_device "$(over_links "$address")"
fi
mount_device
for load in files sqlite; do
    python3 "$(dirname "$0")/lib/failover_load.py" "$load" "$mount_point" "$work/progress-$load" "$work/stop" "$work/calm" \
        >"$work/said-$load" 2>&1 &
    loads+=($!)
done

poll_s=0.2
link() { "$bin/tiffin" link "$1" "$mount_point" "$(link_address "$2")"; }
# The state of a link by its address; nothing if there is none.
state_of() {
    local number
    number=$("$bin/tiffin" status "$mount_point" | sed -n "s/^server [^ ]* link \([1-8]\) address: $(link_address "$1")\$/\1/p")
    [[ -z $number ]] || status_of "link $number"
}
is_well() { [[ $(state_of "$1") == ready || $(state_of "$1") == active ]]; }
is_active() { [[ $(state_of "$1") == active ]]; }
is_refused() { ! link "$1" "$2" 2>"$work/refused" || fail "tiffin link $1 was not refused"; grep -q "$3" "$work/refused" || fail "$(<"$work/refused")"; }
declare -A before=([files]=0 [sqlite]=0)
rounds() { cat "$work/progress-$1" 2>/dev/null || true; }
have_gone_on() {
    local load
    for load in files sqlite; do
        ! grep -q Traceback "$work/said-$load" || fail "$load: $(<"$work/said-$load")"
        [[ $(rounds $load) -ge $((before[$load] + 2)) ]] || return 1
    done
}
go_on() {
    local load
    for load in files sqlite; do before[$load]=$(rounds $load); done
    wait_until have_gone_on
}

resumptions=0
if [[ $begins_with == one ]]; then
    wait_until have_gone_on
    is_refused remove 0 'stays'
    link add 1
    resumptions=1
fi
wait_until is_well 1
go_on
is_refused add 0 'in use already'
is_refused remove 2 'no such link'
# One that leads nowhere is tried again and again, and tiffin status says why.
nowhere=$(server_address 2):1
"$bin/tiffin" link add "$mount_point" "$nowhere"
is_known_why() { [[ $(status_of 'link 3 problem') == *refused* ]]; }
wait_until is_known_why
"$bin/tiffin" link remove "$mount_point" "$nowhere"
for round in 1 2 3 4 5; do
    say "round $round"
    link add 2
    wait_until is_well 2
    link remove 0  # which is used
    [[ -z $(state_of 0) ]] || fail "link 1 is $(state_of 0)"
    go_on
    # Nothing goes there any more.
    cut_link 0 silent
    go_on
    repair_links
    link remove 1
    wait_until is_active 2  # it may be suspect at a moment at which the machine is too busy
    is_refused remove 2 'stays'
    go_on
    for other in 0 1; do link add $other; wait_until is_well $other; done
    link remove 2
    go_on
done
touch "$work/stop"
for load in "${loads[@]}"; do wait "$load" || fail "$(cat "$work"/said-*)"; done
loads=()
[[ $(status_of reconnections) -eq $resumptions ]] || fail "$(status_of reconnections) reconnections"
# None, but on a machine that is busy enough to make a link look silent.
say "resent $(status_of 'resent operations'), failovers $(status_of failovers)"
[[ $(status_of 'resent operations') -eq 0 || $(status_of failovers) -gt 0 ]] || fail "$(status_of 'resent operations') were sent again"
unmount_device
check_device "after links came and went"
stop_server
