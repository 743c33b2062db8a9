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

need_programs ss

# counted NAME OPERATOR NUMBER: what the metric is now.
counted() {
    local line connection value=""
    exec {connection}<>"/dev/tcp/127.0.0.1/${metrics##*:}" || fail "nobody serves metrics"
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&"$connection"
    while read -r line; do
        line=${line%$'\r'}
        [[ ${line% *} != "$1" ]] || value=${line##* }
    done <&"$connection"
    exec {connection}>&-
    [[ -n $value ]] || fail "there is no metric $1"
    value=$(printf '%.0f' "$value")
    test "$value" "$2" "$3" || fail "$1 is $value, and not $2 $3"
}

printf 'threads = 2\nthraeds = 3\n' >"$work/bad.toml"
expect_failure 'bad.toml:2: thraeds is not known' "$bin/tiffind" --config "$work/bad.toml" --check
expect_failure 'cannot be read' "$bin/tiffind" --config "$work/none.toml" --check
expect_failure 'tiffind cannot be reached' "$bin/tiffin" volume list --socket "$admin"

settings=('[volume.configured]' 'size = "8M"')
metrics=127.0.0.1:$(free_port)
start_server
[[ $(volumes | cut -f1) == configured ]] || fail "the configured volume is not there"
expect_failure 'another tiffind uses this state directory' "$bin/tiffind" --config "$work/tiffind.toml"
sed 's|/state"|/other"|' "$work/tiffind.toml" >"$work/other.toml"
expect_failure 'cannot listen on 127.0.0.1' "$bin/tiffind" --config "$work/other.toml"
made=$(make_volume made 16M)
key=$work/made.key
[[ $(stat -c '%a %s' "$key") == '600 65' ]] || fail "the key's file is $(stat -c '%a %s' "$key")"
expect_failure 'exists already' "$bin/tiffin" volume create other 1M --key-file "$key" --socket "$admin"
expect_failure 'there is a volume made already' "$bin/tiffin" volume create made 1M --socket "$admin"
expect_failure 'volume large would have 12884901888 bytes, which memory_limit' \
    "$bin/tiffin" volume create large 12G --socket "$admin"
! "$bin/tiffin" volume create unheard 1M --socket "$admin" >/dev/full 2>"$work/unheard" || fail "a key that nobody has read is given out"
grep -q "'tiffin volume info unheard --key-file FILE' writes it" "$work/unheard" || fail "of a key that is not written: $(<"$work/unheard")"
"$bin/tiffin" volume info unheard --key-file "$work/unheard.key" --socket "$admin" >/dev/null
"$bin/tiffin" volume delete unheard --socket "$admin"
touch "$work/held"
expect_failure 'is in use: another program has it open' \
    flock "$work/held" "$bin/tiffin" volume create held 1M --backing "$work/held" --socket "$admin"
expect_failure 'can only grow' "$bin/tiffin" volume resize made 8M --socket "$admin"
"$bin/tiffin" volume resize made 32M --socket "$admin"
"$bin/tiffin" volume info made --socket "$admin" --json | grep -q '"data_bytes": 33554432' ||
    fail "the volume has another size"
"$bin/tiffin" volume info made --socket "$admin" --key-file "$work/again.key" >/dev/null
cmp "$key" "$work/again.key" || fail "the key is another one"

# Metrics: for this host only, and what was counted is there.
listening=$(ss -Hltn "sport = :${metrics##*:}" | awk '{ print $4 }')
[[ $listening == "127.0.0.1:${metrics##*:}" ]] || fail "metrics are served at: $listening"
address="tiffin://127.0.0.1:$port/made?key_file=$key&transport=tcp"
counted 'tiffind_requests_total{volume="made",operation="write"}' -eq 0
for operation in read write; do
    "$bin/tiffin" perf "$address" --operation $operation --overwrite --no-baseline --size 4096 \
        --duration 0.1 --json >"$work/$operation"
done
measured() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["results"][0]["operations"])' "$work/$1"; }
for operation in read write; do
    number=$(measured $operation)
    counted "tiffind_requests_total{volume=\"made\",operation=\"$operation\"}" -ge "$number"
done
counted 'tiffind_bytes_total{volume="made",direction="written"}' -ge $((number * 4096))
counted 'tiffind_bytes_total{volume="configured",direction="written"}' -eq 0
counted 'tiffind_sessions_opened_total{volume="made"}' -ge 2
counted 'tiffind_handshakes_total{result="done"}' -ge 2
counted 'tiffind_handshakes_total{result="denied"}' -eq 0
printf '%064d\n' 7 >"$work/wrong.key"
chmod 600 "$work/wrong.key"
expect_failure 'key' "$bin/tiffin" perf "${address/$key/$work/wrong.key}" --no-baseline
counted 'tiffind_handshakes_total{result="denied"}' -ge 1
grep -q 'a client at ::ffff:127.0.0.1 was refused: it has not the key of volume "made"' "$server_log" ||
    fail "the log does not say who was refused: $(tail -n 5 "$server_log")"
counted tiffind_memory_limit_bytes -eq $((6 << 30))

# Reading the configuration again: a new volume; and a mistake, which changes nothing.
printf '[volume.later]\nsize = "4M"\n[volume.huge]\nsize = "12G"\n' >>"$work/tiffind.toml"
kill -HUP "$keeper"
wait_until grep -q 'configuration read again' "$server_log"
volumes | grep -q '^later' || fail "the new volume was not made"
grep -q 'volume huge would have 12884901888 bytes, which memory_limit' "$server_log" || fail "the log does not say what is too large"
echo 'nonsense' >>"$work/tiffind.toml"
kill -HUP "$keeper"
wait_until grep -q 'nothing was changed' "$server_log"

# A lower limit counts at once: there are 44 MiB.
write_configuration
sed -i 's/^memory_limit = .*/memory_limit = "64M"/' "$work/tiffind.toml"
kill -HUP "$keeper"
was_read_twice() { [[ $(grep -c 'configuration read again' "$server_log") -eq 2 ]]; }
wait_until was_read_twice
expect_failure 'memory_limit' "$bin/tiffin" volume create beyond 20M --socket "$admin"
make_volume within 4M >/dev/null
"$bin/tiffin" volume delete within --socket "$admin"
counted tiffind_memory_limit_bytes -eq $((64 << 20))

"$bin/mkfs.tiffin" -q "$made" >"$work/out" 2>&1 || fail "mkfs.tiffin -q: $(<"$work/out")"
[[ ! -s $work/out ]] || fail "mkfs.tiffin -q says '$(<"$work/out")'"
[[ -S $work/run/volume.made.sock ]] || fail "the volume has no socket for processes of this host"
kill_worker
[[ $(volumes | cut -f1 | sort | tr '\n' ' ') == 'configured later made ' ]] || fail "volumes are lost"
"$bin/tiffin" volume delete made --socket "$admin"
[[ ! -e $work/run/volume.made.sock ]] || fail "the deleted volume's socket is still there"
expect_failure 'there is no volume made' "$bin/tiffin" volume info made --socket "$admin"

# Who starts it again right after its keeper was killed need not do so twice: the worker is still ending. And a key that others
# can read is worth a line.
chmod 755 "$work/state"
chmod 644 "$work/state/configured.volume"
: >"$server_log"
kill -KILL "$keeper"
start_server
wait_until grep -q 'volume configured: ' "$server_log"  # what answered may have been the other one still
wait_until server_is_ready
! grep 'uses this state directory$' "$server_log" >&2 || fail "the first attempt to start failed"
grep -q "others can read $work/state/configured.volume" "$server_log" || fail "no word of a key that others can read"
! grep -q 'others can read.*later' "$server_log" || fail "the other key can be read by nobody"
# The memory went with the keeper, which whoever opens the volume is told.
"$bin/tiffin" volume info configured --socket "$admin" --key-file "$work/configured.key" >/dev/null
mkdir "$work/nowhere"
expect_failure 'the server has lost its content' "$bin/mount.tiffin" \
    "tiffin://127.0.0.1:$port/configured?key_file=$work/configured.key&transport=tcp" "$work/nowhere"
expect_failure 'the server has lost its content' "$bin/fsck.tiffin" -n \
    "tiffin://127.0.0.1:$port/configured?key_file=$work/configured.key&transport=tcp"
stop_server
[[ -z $(ls "$work/run") ]] || fail "left behind: $(ls "$work/run")"
[[ ! -e $work/state/made.volume ]] || fail "the state of the deleted volume is still there"

# The sample, as it is, and with all defaults that it shows.
"$bin/tiffind" --config "$repository/packaging/tiffind.toml" --check || fail "the sample configuration"
sed 's/^#\([a-z[]\)/\1/' "$repository/packaging/tiffind.toml" >"$work/all.toml"
"$bin/tiffind" --config "$work/all.toml" --check || fail "the sample configuration with all its lines"

# The units; the manual pages need not be installed here, nor the programs.
if command -v systemd-analyze >/dev/null; then
    sed "s|@sbin@|$bin|" "$repository/rdma_blk/server/tiffind.service.in" >"$work/tiffind.service"
    for unit in "$work/tiffind.service" "$repository"/packaging/examples/*mount; do
        systemd-analyze verify --man=no "$unit" >"$work/verify" 2>&1 || fail "$unit: $(<"$work/verify")"
        ! grep -F "$(basename "$unit")" "$work/verify" >&2 || fail "$unit"
    done
fi
echo "passed"
