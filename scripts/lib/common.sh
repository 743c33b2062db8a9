# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by the scripts: where things are, and how to talk to the reader.
# shellcheck shell=bash

# shellcheck disable=SC2034  # used by those who source this file
repository="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
program="$(basename "$0")"

say() { printf '%s: %s\n' "$program" "$*"; }
warn() { printf '%s: warning: %s\n' "$program" "$*" >&2; }
fail() {
    printf '%s: error: %s\n' "$program" "$*" >&2
    exit 1
}

# Prints the comment at the head of a script as its help.
print_usage() { sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# Runs a command as root, through sudo when we are somebody else.
as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        fail "'$1' has to run as root. Become root, or install sudo."
    fi
}
