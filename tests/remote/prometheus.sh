#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The metrics of a mount over two links and of its server, the example rules and the example dashboard, with a real Prometheus.
# Exits with 77, which CTest shows as skipped, where Prometheus is not installed.
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs python3
for program in prometheus promtool; do
    command -v "$program" >/dev/null || { echo "SKIPPED: $program is not installed ('scripts/deps test' installs it)"; exit 77; }
done

examples=$repository/docs/examples/monitoring
lib=$repository/tests/remote/lib
prometheus=""
prometheus_clean_up() {
    local status=$?
    trap - EXIT
    if [[ -n $prometheus ]]; then
        kill -KILL "$prometheus" 2>/dev/null || true
        wait "$prometheus" 2>/dev/null || true
    fi
    clean_up_server status
    clean_up "$status"
}
trap prometheus_clean_up EXIT

get() { python3 -c 'import sys, urllib.request
sys.stdout.buffer.write(urllib.request.urlopen(sys.argv[1], timeout=20).read())' "$1"; }

say "the examples by themselves"
promtool check config "$examples/prometheus.yml" >"$work/out" 2>&1 || fail "prometheus.yml: $(<"$work/out")"
sed "s|RULES|$examples/tiffin.rules.yml|" "$lib/rules_test.yml" >"$work/rules_test.yml"
promtool test rules "$work/rules_test.yml" >"$work/out" 2>&1 || fail "the alerts: $(<"$work/out")"

say "a server and a mount with work to do"
listen_host=0.0.0.0
metrics=127.0.0.1:$(free_port)
mount_metrics=127.0.0.1:$(free_port)
start_server
make_volume watched 64M --backing "$work/backing" >/dev/null
use_device "tiffin://127.0.0.1:$port+127.0.0.2:$port/watched?key_file=$work/watched.key" ""
mount_device "metrics=$mount_metrics"
for i in {1..20}; do
    head -c 300000 /dev/urandom >"$mount_point/$i"
done
sync -f "$mount_point"
rm "$mount_point"/1?
! rmdir "$mount_point/2" 2>/dev/null || fail "a file is a directory"
for address in "$metrics" "$mount_metrics"; do
    get "http://$address/metrics" >"$work/metrics"
    promtool check metrics <"$work/metrics" >"$work/out" 2>&1 || fail "metrics at $address: $(<"$work/out")"
    [[ ! -s $work/out ]] || fail "metrics at $address: $(<"$work/out")"
done

say "Prometheus scrapes both"
sed -e "s|127.0.0.1:9847|$metrics|; s|127.0.0.1:9848|$mount_metrics|; s|scrape_interval: 15s|&\n  evaluation_interval: 1s|" \
    -e 's|scrape_interval: 15s|scrape_interval: 2s|' -e "s|tiffin.rules.yml|$examples/&|" "$examples/prometheus.yml" >"$work/prometheus.yml"
url=http://127.0.0.1:$(free_port)
prometheus --config.file="$work/prometheus.yml" --storage.tsdb.path="$work/tsdb" --web.listen-address="${url#http://}" \
    --log.level=warn >"$work/prometheus.log" 2>&1 &
prometheus=$!
# Three times at least, so that there are rates; on a busy machine others may fail. And the rules were evaluated.
is_scraped() {
    ! has_ended "$prometheus" || fail "Prometheus has ended: $(tail -n 5 "$work/prometheus.log")"
    get "$url/api/v1/query?query=sum_over_time(up%5B5m%5D)%20%3E%3D%203" 2>/dev/null |
        python3 -c 'import json, sys; sys.exit(len(json.load(sys.stdin)["data"]["result"]) != 2)' 2>/dev/null &&
        get "$url/api/v1/rules" | python3 -c 'import json, sys
rules = [r for g in json.load(sys.stdin)["data"]["groups"] for r in g["rules"]]
sys.exit(not rules or any(r["health"] != "ok" for r in rules))'
}
wait_until is_scraped
python3 "$lib/check_monitoring.py" "$url" "$examples/grafana-dashboard.json" || fail "the dashboard and the rules do not fit the metrics"
sed 's/tiffin_journal_pending_bytes/tiffin_journal_pendling_bytes/' "$examples/grafana-dashboard.json" >"$work/wrong.json"
! python3 "$lib/check_monitoring.py" "$url" "$work/wrong.json" >"$work/out" 2>&1 || fail "a wrong name in the dashboard is not noticed"
grep -q 'nothing matches tiffin_journal_pendling_bytes' "$work/out" || fail "the check says $(<"$work/out")"

say "an alert, when the server is gone"
kill -STOP "$(worker)"
ls "$mount_point" >/dev/null 2>&1 &
is_alerting() {
    get "$url/api/v1/query?query=ALERTS%7Balertname%3D%22TiffindDown%22%7D" |
        python3 -c 'import json, sys; sys.exit(not json.load(sys.stdin)["data"]["result"])'
}
wait_until is_alerting
kill -CONT "$(worker)"
wait $!
unmount_device
echo "metrics, dashboard and rules fit together"
