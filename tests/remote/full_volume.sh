#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# tests/mount/full_volume.sh on remote volumes, which keep their sizes: one for each kind of content.
#
# usage: full_volume.sh [tcp|shm|sdr]
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

start_server
addresses=()
for kind in large tiny xattr; do
    size=8M
    [[ $kind != large ]] || size=32M
    addresses+=("$(make_volume "$kind" "$size")")
done
"$repository/tests/mount/full_volume.sh" "${addresses[@]}"
