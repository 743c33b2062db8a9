#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# tiffin perf: what it counts is consistent, and what it must not do it does not.
#
# usage: perf.sh
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

start_server
address=$(make_volume books 64M)

# measures CARRIERS ARGUMENT...: with every histogram as large as the number of operations.
measures() {
    local carriers=$1
    shift
    "$bin/tiffin" perf "$address" --json --duration 0.2 "$@" >"$work/perf" 2>&1 ||
        fail "tiffin perf $*: $(<"$work/perf")"
    python3 - "$work/perf" "$carriers" <<'END' || fail "tiffin perf $*: $(<"$work/perf")"
import json, sys
results = json.load(open(sys.argv[1]))["results"]
assert ",".join(result["carrier"] for result in results) == sys.argv[2], results
for result in results:
    assert result["operations"] > 0
    assert sum(bucket["count"] for bucket in result["histogram"]) == result["operations"]
    if result["carrier"] == "tcp":
        assert result["system_calls_per_operation"] > 0 and result["round_trips_per_operation"] > 0, result
    order = [result[key] for key in ("least_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "greatest_ns")]
    assert order == sorted(order), order
END
}

say "what is measured"
measures "tcp,plain TCP,plain UDP,polling UDP"
measures "tcp" --no-baseline --threads 2 --depth 8
measures "tcp,plain TCP" --size 1M --depth 2
measures "tcp,plain TCP,plain UDP,polling UDP" --operation write --overwrite --size 512
for operation in compare_swap fetch_add flush; do
    measures "tcp,plain TCP,plain UDP,polling UDP" --operation "$operation"
done
"$bin/tiffin" perf --echo "127.0.0.1:$(free_port)" &
echo_end=$!
listening() { echo_port=$(ss -Hltnp 2>/dev/null | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$echo_end,.*/\1/p"); [[ -n $echo_port ]]; }
wait_until listening
measures "tcp,plain TCP,plain UDP,polling UDP" --baseline "127.0.0.1:$echo_port"
kill "$echo_end"

# As text: for each carrier a line whose percentiles ascend, and a histogram whose shares are everything.
"$bin/tiffin" perf "$address" --duration 0.2 --threads 2 --depth 4 --size 512 >"$work/text" 2>&1 ||
    fail "tiffin perf: $(<"$work/text")"
python3 - "$work/text" <<'END' || fail "tiffin perf says: $(<"$work/text")"
import re, sys
parts = open(sys.argv[1]).read().rstrip("\n").split("\n\n")
assert parts[0] == "read of 512 bytes, 2 threads, 0.2 s each; latencies in microseconds", parts[0]
names, *rows = parts[1].split("\n")
assert names.split() == "carrier depth per second MB/s mean 50% 90% 99% 99.9% greatest".split(), names
rows = [[row[:12].strip(), *row[12:].split()] for row in rows]
assert [row[0] for row in rows][:2] == ["tcp", "plain TCP"] and rows[0][1] == "4", rows
assert re.fullmatch(r"tcp: [\d.]+ round trips, [\d.]+ system calls, \d+ copied bytes for each", parts[2]), parts[2]
for row, histogram in zip(rows, parts[3:], strict=True):
    per_second, megabytes, mean, *order = map(float, row[2:])
    assert abs(per_second * 512 / 1e6 - megabytes) < 0.1 and mean > 0 and order == sorted(order), row
    name, *lines = histogram.split("\n")
    assert name == row[0], histogram
    lines = [re.fullmatch(r" +([\d.]+) us +(\d+) +([\d.]+)%  (#*)", line).groups() for line in lines]
    starts, shares = [[float(line[part]) for line in lines] for part in (0, 2)]
    assert abs(sum(shares) - 100) < 0.1 * len(lines), shares
    assert all(abs(len(line[3]) - float(line[2]) / 2) < 0.6 for line in lines), histogram
    assert starts == sorted(starts) and starts[0] <= order[0] and starts[-1] <= order[-1], (starts, order)
END

over_tcp=$address
address+="&busy_poll_us=0"
measures "tcp,plain TCP,plain UDP"

say "over shared memory"
address=$over_tcp
address=${address/transport=tcp/transport=shm}
measures "shm,memory copy,plain TCP,plain UDP,polling UDP"
measures "shm" --no-baseline --operation fetch_add --threads 2
measures "shm" --no-baseline --operation flush
measures "shm" --no-baseline --operation write --overwrite
# Those of the session's thread, which looks around now and then, are among them. Without 64-byte stores a write is one.
python3 -c 'import json, sys
per_write = 0 if " avx512f " in open("/proc/cpuinfo").read() else 1
assert per_write <= json.load(open(sys.argv[1]))["results"][0]["system_calls_per_operation"] < per_write + 0.1' "$work/perf" ||
    fail "writes make other system calls than they should: $(<"$work/perf")"
address=$over_tcp

say "over an emulated link"
over_tcp=$address
address=${address/transport=tcp/transport=sdr\&sdr_scheme=nack}
# over_link ARGUMENT...: what was lost was lost by the link, and was repeated; text goes through, too.
over_link() {
    measures "sdr" --loss 0.1 --delay 1ms --size 1M --depth 2 "$@"
    python3 - "$work/perf" <<'END' || fail "tiffin perf over a link, $*: $(<"$work/perf")"
import json, sys
document = json.load(open(sys.argv[1]))
link, result = document["link"], document["results"][0]
assert (link["loss"], link["burst"], link["delay_us"]) == (0.1, 1, 1000), link
assert link["datagrams_lost"] > 0 and link["datagrams_forwarded"] > link["datagrams_lost"], link
# Each operation takes 1 MiB in datagrams of less than 64 KiB.
assert link["datagrams_forwarded"] > 16 * result["operations"], document
assert result["chunks_lost"] + result["chunks_repeated"] > 0, result
assert result["reconnections"] == 0 and result["round_trip_us"] > 0, result
END
}
over_link
over_link --operation write --overwrite
# Everywhere is what was written, or what was there before, which is nothing.
python3 - "$(worker)" <<'END' || fail "what was written over a link is not right"
import os, sys
folder = f"/proc/{sys.argv[1]}/fd"
regions = [f"{folder}/{name}" for name in os.listdir(folder)
           if os.readlink(f"{folder}/{name}").startswith("/memfd:tiffind:books:data")]
content = open(regions[0], "rb").read()
written = content.count(0x5a)
assert written >= 1 << 20 and written % 4096 == 0 and written + content.count(0) == len(content), written
END
"$bin/tiffin" perf "$address" --loss 0.01 --burst 4 --rate 1gbit --duration 0.1 >"$work/text"
grep -q 'emulated link, 1 % of datagrams lost in bursts of 4, 0 ms, 1000 Mbit/s each way: [1-9]' "$work/text" ||
    fail "perf said: $(<"$work/text")"
address=$over_tcp

say "what is refused"
# refuses TEXT ARGUMENT...: as wrong usage; fails_with STATUS the same.
refuses() { fails_with 2 "$@"; }
fails_with() {
    local expected=$1 text=$2 output status=0
    shift 2
    output=$("$bin/tiffin" perf "$@" 2>&1) || status=$?
    [[ $status -eq $expected ]] || fail "perf $* ended with $status, expected $expected: $output"
    [[ $output == *"$text"* && $(wc -l <<<"$output") -eq 1 ]] || fail "perf $* said '$output', expected '$text'"
}
use_device "$address"
sum=$("$bin/tiffin" info "$address" | sha256sum)
measures "tcp" --no-baseline --operation fetch_add
refuses "say --overwrite" "$address" --operation write
measures "tcp" --no-baseline
[[ $("$bin/tiffin" info "$address" | sha256sum) == "$sum" ]] || fail "reading has changed the volume"
refuses "unknown: read, write, compare_swap" "$address" --operation walk
refuses "out of bounds" "$address" --depth 0
fails_with 1 "too large for this volume" "$address" --no-baseline --size 64M
refuses "name a remote volume" mem:1G
refuses "need transport=sdr" "$address" --loss 0.1
refuses "a share of the datagrams" "$address" --loss 1.5
refuses "needs --loss" "$address" --burst 4
refuses "such as 10ms" "$address" --delay 10
refuses "such as 100mbit" "$address" --rate 100
refuses "do not pass it" "$address" --loss 0.1 --baseline 127.0.0.1:1
mount_device
fails_with 1 "$(hostname), process $server" "$address" --no-baseline --operation write --overwrite
unmount_device
check_device "after measuring"
echo "passed"
