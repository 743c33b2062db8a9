#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# tests/mount/real_input.sh on a remote volume; with a smaller tree, unless the whole one is asked for.
#
# usage: real_input.sh [tcp|shm|sdr] [--tiny|--small|--whole]
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

settings=('probe_interval_ms = 100' 'lease_timeout_s = 5')  # a killed daemon's volume is free soon
start_server
options=("${2:---small}")
[[ ${2:-} != --whole ]] || options=()
"$repository/tests/mount/real_input.sh" "$(make_volume books 2G)" "${options[@]}"
