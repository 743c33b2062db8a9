# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by tests/uml/run and tests/vm/guest: what a machine says whose first program is tests/uml/init.
# shellcheck shell=bash

# show_machine CONSOLE: from standard input to that file, and what the script in the machine says to standard output.
show_machine() {
    sed --unbuffered 's,\r,,g' | tee "$1" | sed --unbuffered -e '0,/^tiffin-uml: begin$/d' -e '/^tiffin-uml: exit status/,$d'
}

# judge_machine STATUS CONSOLE KERNEL_LOG: makes the log. Fails when the machine did not end (STATUS is that of timeout), its
# script has failed, or its kernel has complained.
judge_machine() {
    local status=$1 console=$2 log=$3
    sed -n '/^tiffin-uml: kernel log$/,/^tiffin-uml: end of the log$/p' "$console" >"$log"
    [[ $status -ne 124 && $status -ne 137 ]] || fail "the machine was still running after its time; see $console"
    grep -q '^tiffin-uml: exit status 0$' "$console" ||
        fail "the script has failed; what the machine said is in $console, the kernel's log in $log"
    if sed '/tiffin-uml: complaints are expected/,$d' "$log" |
        grep -E 'WARNING|BUG|Call Trace|Oops|blocked for more than|[ -]stall|detected stalls|tiffin: unload: FAILED'; then
        fail "the kernel complains: see $log"
    fi
}
