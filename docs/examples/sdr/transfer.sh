#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The examples "send" and "receive" on a path that loses a fiftieth of all packets.
#
# usage: transfer.sh FOLDER_WITH_THE_PROGRAMS
set -euo pipefail

programs=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
port=$((20000 + $$ % 20000))

head -c 5000000 /dev/urandom >"$folder/sent"
"$programs/sdr_example_receive" "$port" >"$folder/received" &
receiver=$!
"$programs/sdr_example_send" "$port" 20000 <"$folder/sent"
wait "$receiver"
cmp "$folder/sent" "$folder/received"
