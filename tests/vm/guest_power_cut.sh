#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The machine's half of tests/vm/power_cut: says what is durable, and ends in the middle of that. Run by tests/vm/guest.
#
# usage: guest_power_cut.sh ROUND DURABLE     (a file on the host: what earlier rounds have made durable)
set -euo pipefail
: "${repository:?tests/vm/guest starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$repository/tests/uml/lib/guest.sh"
device=/dev/vda
load_modules
mount_device rw
"$repository/tests/vm/durable.py" "$2" "$mount_point" || fail "what earlier rounds have made durable: see above"
for writer in 1 2 3; do
    "$repository/tests/vm/durable.py" --write "$1-$writer" "$mount_point" &
done
# And one that makes nothing durable.
while cp -r "$repository/fs" "$mount_point/copy-$1" && rm -r "$mount_point/copy-$1"; do :; done &
sleep $((15 + RANDOM % 10))
for writer in $(jobs -p); do
    kill -0 "$writer" || fail "a program has ended"
done
! dmesg | grep -E 'WARNING|BUG|Call Trace|Oops' || fail "the kernel complains"
echo "cutting the power"
# What has been said is on its way through the serial port.
sleep 1
echo b >/proc/sysrq-trigger
sleep 10
