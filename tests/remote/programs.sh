#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# tiffind and 'tiffin volume' as programs: what they say, what they refuse, what is left behind.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

volumes() { "$bin/tiffin" volume list --socket "$admin"; }

expect_failure() {
    local text=$1 status=0
    shift
    "$@" >"$work/out" 2>&1 || status=$?
    [[ $status -ne 0 ]] || fail "this should fail: $*"
    grep -q -- "$text" "$work/out" || fail "'$*' says '$(cat "$work/out")', and not '$text'"
}

printf 'threads = 2\nthraeds = 3\n' >"$work/bad.toml"
expect_failure 'bad.toml:2: thraeds is not known' "$bin/tiffind" --config "$work/bad.toml" --check
expect_failure 'cannot be read' "$bin/tiffind" --config "$work/none.toml" --check
expect_failure 'tiffind cannot be reached' "$bin/tiffin" volume list --socket "$admin"

settings=('[volume.configured]' 'size = "8M"')
start_server
[[ $(volumes | cut -f1) == configured ]] || fail "the configured volume is not there"
expect_failure 'another tiffind uses this state directory' "$bin/tiffind" --config "$work/tiffind.toml"
sed 's|/state"|/other"|' "$work/tiffind.toml" >"$work/other.toml"
expect_failure 'cannot listen on 127.0.0.1' "$bin/tiffind" --config "$work/other.toml"
make_volume made 16M >/dev/null
key=$work/made.key
[[ $(stat -c '%a %s' "$key") == '600 65' ]] || fail "the key's file is $(stat -c '%a %s' "$key")"
expect_failure 'exists already' "$bin/tiffin" volume create other 1M --key-file "$key" --socket "$admin"
expect_failure 'there is a volume made already' "$bin/tiffin" volume create made 1M --socket "$admin"
expect_failure 'memory_limit' "$bin/tiffin" volume create large 12G --socket "$admin"
expect_failure 'can only grow' "$bin/tiffin" volume resize made 8M --socket "$admin"
"$bin/tiffin" volume resize made 32M --socket "$admin"
"$bin/tiffin" volume info made --socket "$admin" --json | grep -q '"data_bytes": 33554432' ||
    fail "the volume has another size"
"$bin/tiffin" volume info made --socket "$admin" --key-file "$work/again.key" >/dev/null
cmp "$key" "$work/again.key" || fail "the key is another one"

# Reading the configuration again: a new volume; and a mistake, which changes nothing.
printf '[volume.later]\nsize = "4M"\n' >>"$work/tiffind.toml"
kill -HUP "$keeper"
wait_until grep -q 'configuration read again' "$server_log"
volumes | grep -q '^later' || fail "the new volume was not made"
echo 'nonsense' >>"$work/tiffind.toml"
kill -HUP "$keeper"
wait_until grep -q 'nothing was changed' "$server_log"

[[ -S $work/run/volume.made.sock ]] || fail "the volume has no socket for processes of this host"
kill_worker
[[ $(volumes | cut -f1 | sort | tr '\n' ' ') == 'configured later made ' ]] || fail "volumes are lost"
"$bin/tiffin" volume delete made --socket "$admin"
[[ ! -e $work/run/volume.made.sock ]] || fail "the deleted volume's socket is still there"
expect_failure 'there is no volume made' "$bin/tiffin" volume info made --socket "$admin"
stop_server
[[ -z $(ls "$work/run") ]] || fail "left behind: $(ls "$work/run")"
[[ ! -e $work/state/made.volume ]] || fail "the state of the deleted volume is still there"
echo "passed"
