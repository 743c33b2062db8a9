# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and tests/package: a small Debian 12 to install packages into.
# shellcheck shell=bash

# Delete it, and scripts/deps makes another one.
clean_debian="${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/debian-12-systemd.tar"

provide_clean_debian() {
    [[ ! -s $clean_debian ]] || return 0
    local uri partial="$clean_debian.partial"
    uri="$(debian_archive_uri)"
    say "making a clean Debian 12 in $clean_debian"
    mkdir -p "$(dirname "$clean_debian")"
    # With the lists of packages, which are wanted to install something there.
    if as_root mmdebstrap --quiet --variant=apt --include=systemd,systemd-sysv --mode=root --skip=cleanup/apt --format=tar \
        bookworm - "deb ${uri:-http://deb.debian.org/debian} bookworm main" >"$partial"; then
        mv "$partial" "$clean_debian"
    else
        rm -f "$partial"
        warn "no clean Debian 12: the test of the packages is skipped. Run scripts/deps again to retry."
    fi
}
