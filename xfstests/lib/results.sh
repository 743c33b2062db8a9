# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What both ways of running the suite share: through FUSE (xfstests/run), and in user-mode Linux (tests/uml/xfstests).
# shellcheck shell=bash

# summarise OUTPUT: one line for each test of what ./check has printed: name, result, and why it was not run or what failed.
# A test that was ended for want of time is told from one that has found something. A test without a result is one in which
# the machine, or ./check, has ended.
summarise() {
    awk '
        /^[a-z]+\/[0-9]+ / {
            name = $1; line = $0; sub(/^[^ ]+ +/, "", line); sub(/^[0-9]+s \.\.\. +/, "", line)
            if (line ~ /\[ended after/) { sub(/.*\[/, "", line); sub(/\].*/, "", line); print name "\tfailed\t" line }
            else if (line ~ /\[not run\]/) { sub(/.*\[not run\] */, "", line); print name "\tnot run\t" line }
            else if (line ~ /output mismatch|failed|_check_|dumped core/) { print name "\tfailed\t" line }
            else if (line ~ /^[0-9]+s$/) { print name "\tpassed\t" }
            else { print name "\tfailed\t" (line == "" ? "did not end" : line) }
        }' "$1" | sed -e 's, *(see .*,,'
}

# end_slow_tests SECONDS [NAME=VALUE]: never returns. Ends tests that take longer, of those with that in their environment:
# their shell, which ./check then reports as failed.
# ps gives processes that have just begun an age of a hundred years now and then (procps 4.0.2).
end_slow_tests() {
    while sleep 5; do
        ps -eo pid=,etimes=,args= |
            awk -v limit="$1" \
                '$2 > limit && $2 < 1000000 && /bash .*tests\/[a-z]+\/[0-9]+/ && !/awk/ { print $1 }' |
            while read -r pid; do
                [[ -z ${2:-} ]] || grep -qzxF "$2" "/proc/$pid/environ" 2>/dev/null || continue
                # Behind the name of the test, which ./check has printed.
                ! kill "$pid" || echo " [ended after $1 s]"
            done
    done
}
