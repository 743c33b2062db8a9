# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Checks a dashboard of Grafana and the loaded rules of a running Prometheus against what it has scraped.

usage: check_monitoring.py URL_OF_PROMETHEUS DASHBOARD

Each query must be valid, each metric in it must be known, and each selector, with the labels it is grouped by or shown with,
must match something: a mistyped label would otherwise select nothing, for ever. Prints what it has checked.
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

# What this test does not bring about.
MAY_BE_ABSENT = {"tiffin_remote_round_trip_seconds"}  # of sdr
SELECTOR = re.compile(r"\b((?:tiffind?|up)(?:_\w+)?)\b(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
VARIABLES = {"$__rate_interval": "1m", "$mount": ".+", "$server": ".+"}


class Prometheus:
    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **arguments: str) -> object:
        address = f"{self.url}/api/v1/{path}?" + urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(address, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"Prometheus refuses {arguments}: {error.read().decode()}")

    def labels_of(self, selector: str) -> set[str]:
        """Names of labels that series of a selector have."""
        return {name for series in self.get("series", **{"match[]": selector}) for name in series}


def queries_of(dashboard: Path) -> list[tuple[str, str, str]]:
    """Title, query and legend of each line of each panel."""
    panels = json.loads(dashboard.read_text())["panels"]
    return [(panel["title"], target["expr"], target["legendFormat"])
            for panel in panels for target in panel.get("targets", [])]


def check(prometheus: Prometheus, title: str, query: str, shown: str) -> int:
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    prometheus.get("query", query=query)
    strings_removed = re.sub(r'"[^"]*"', '""', query)
    wanted = {label.strip() for group in GROUPING.findall(strings_removed) for label in group.split(",")}
    wanted |= set(SHOWN.findall(shown))
    wanted -= {"le", ""}
    found: set[str] = set()
    count = 0
    for name, matchers in SELECTOR.findall(query):
        if name in ("tiffin", "tiffind"):  # a job
            continue
        count += 1
        labels = prometheus.labels_of(name + "{" + matchers + "}")
        if not labels and name not in MAY_BE_ABSENT:
            sys.exit(f"{title}: nothing matches {name}{{{matchers}}}")
        missing = {label for label in MATCHER.findall(matchers) if label not in labels}
        if labels and missing:
            sys.exit(f"{title}: {name} has no label {missing}")
        found |= labels or wanted
    if not wanted <= found:
        sys.exit(f"{title}: no metric of the query has the labels {wanted - found}")
    if count == 0:
        sys.exit(f"{title}: no metric of Tiffin in {query}")
    return count


def main() -> None:
    prometheus = Prometheus(sys.argv[1])
    lines = queries_of(Path(sys.argv[2]))
    selectors = sum(check(prometheus, *line) for line in lines)
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    for rule in rules:
        if rule.get("lastError"):
            sys.exit(f"{rule['name']}: {rule['lastError']}")
        selectors += check(prometheus, rule["name"], rule["query"], rule["annotations"]["summary"])
    if len(lines) < 20 or len(rules) < 10:
        sys.exit(f"only {len(lines)} lines and {len(rules)} rules were found")
    print(f"{len(lines)} lines of the dashboard and {len(rules)} rules, {selectors} selectors")


main()
