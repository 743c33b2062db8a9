#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The path to the server begins to swallow packets of more than 1000 bytes, without a word, as a tunnel does without ICMP:
# a mounted file system works all the same, and so does one that is mounted on such a path. With two links, one of which
# is narrow, the session stays the same.
#
# usage: narrow_path.sh tcp|sdr both|to_server|to_client [LINKS]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
# shellcheck source=tests/remote/lib/links.sh
source "$(dirname "$0")/lib/links.sh"
direction=${2:?usage: narrow_path.sh tcp|sdr both|to_server|to_client [LINKS]}
links=${3:-1}
need_programs ip nft python3

narrow_clean_up() {
    local status=$?
    trap - EXIT
    repair_links 2>/dev/null || true
    clean_up_server status
    remove_links
    clean_up "$status"
}
trap narrow_clean_up EXIT
make_links "$links"
send_unmerged "$links"

kind=narrow
[[ $direction == both ]] || kind=narrow_$direction
listen_host=0.0.0.0
start_server
address=$(make_volume narrow 256M)
hosts=$(server_address 0):$port
[[ $links -eq 1 ]] || hosts+=+$(server_address 1):$port
use_device "${address/127.0.0.1:$port/$hosts}"
mount_device

# Writes a file, and reads it again from the server.
write_and_read() {
    python3 - "$mount_point/$1" <<'END'
import os, random, sys
data = random.randbytes(3 << 20)
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
for begin in range(0, len(data), 1 << 18):
    os.pwrite(descriptor, data[begin:begin + (1 << 18)], begin)
    os.fsync(descriptor)
os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
assert b"".join(os.pread(descriptor, 1 << 18, begin) for begin in range(0, len(data), 1 << 18)) == data
END
}
is_steady() { [[ $(status_of 'link 1') == active ]]; }

write_and_read wide || fail "a path that carries everything"
say "packets of more than 1000 bytes disappear: $direction"
cut_link 0 "$kind"
for round in 1 2 3; do
    write_and_read "$round" || fail "in round $round: $(tail -n 3 "$log")"
    say "round $round, reconnections: $(status_of reconnections)"
done
if [[ $links -gt 1 ]]; then
    [[ $(status_of reconnections) -eq 0 ]] || fail "$(status_of reconnections) reconnections, with a link that is well"
    # The first link is preferred, carries small packets, and in the end those of this session.
    is_known() { [[ $transport == sdr ]] || grep -q "link 1 .*segments of at most 500 bytes" "$log"; }
    used_again() { write_and_read again && is_known && is_steady && [[ $(status_of 'link 1 transport') == "$transport" ]]; }
    poll_s=1 wait_until used_again
    # Datagrams are found to be too long without a word.
    fails_no_more() {
        local failures round
        failures=$(status_of 'link 1 failures')
        for round in 1 2 3; do write_and_read "$round" || fail "in round $round: $(tail -n 3 "$log")"; done
        [[ $(status_of 'link 1 failures') -eq $failures ]] && is_steady
    }
    poll_s=1 wait_until fails_no_more
else
    # Once the width is known, nothing breaks any more.
    reconnections=$(status_of reconnections)
    for round in 1 2 3; do write_and_read "$round"; done
    [[ $(status_of reconnections) -eq $reconnections ]] || fail "it goes on breaking: $(status_of reconnections) reconnections"
    [[ $(status_of transport) == "$transport"* ]] || fail "the transport is $(status_of transport)"
fi
unmount_device
say "a mount on such a path"
mount_device
write_and_read fresh || fail "after a mount: $(tail -n 3 "$log")"
unmount_device
check_device "over a narrow path"
stop_server
