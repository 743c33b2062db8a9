# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and what runs xfstests: a built checkout of the suite. It is in no package of Debian's.
# shellcheck shell=bash

# One folder for each release. Delete it, and scripts/deps builds it again.
xfstests_cache="${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/xfstests"
xfstests_release=v2026.01.05

# Prints where the built suite is; fails when there is none.
xfstests_folder() {
    [[ -e $xfstests_cache/$xfstests_release/complete ]] && printf '%s\n' "$xfstests_cache/$xfstests_release"
}

# teach_sizes COMMON_RC: tests that make a volume smaller than its device know how to do that with mkfs.tiffin.
teach_sizes() {
    ! grep -q "MKFS_PROG -t tiffin" "$1" || return 0
    # shellcheck disable=SC2016  # for the suite to expand
    sed -i '/^_try_scratch_mkfs_sized()/,/^}/ s,^\t\*)$,\ttiffin)\n\t\t$MKFS_PROG -t tiffin $MKFS_OPTIONS $SCRATCH_DEV $fssize\n\t\t;;\n&,' "$1"
    grep -q "MKFS_PROG -t tiffin" "$1" || fail "common/rc of xfstests has another _try_scratch_mkfs_sized now"
}

provide_xfstests() {
    local folder url
    if folder="$(xfstests_folder)"; then
        teach_sizes "$folder/common/rc"
        return 0
    fi
    say "building xfstests $xfstests_release in $xfstests_cache: some minutes, 200 MB"
    mkdir -p "$xfstests_cache"
    folder="$(mktemp -d "$xfstests_cache/building.XXXXXX")"
    # TIFFIN_XFSTESTS_URL: a repository nearer by.
    for url in ${TIFFIN_XFSTESTS_URL:-https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git https://github.com/kdave/xfstests}; do
        if timeout 120 git -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=20 clone --quiet --depth 1 --branch "$xfstests_release" "$url" "$folder/suite" 2>"$folder/log"; then
            break
        fi
    done
    if [[ ! -d $folder/suite ]]; then
        cat "$folder/log" >&2
        rm -rf "$folder"
        fail "xfstests could not be downloaded; TIFFIN_XFSTESTS_URL names another repository of it"
    fi
    teach_sizes "$folder/suite/common/rc"
    # Its users, to whom the tests change, look at it too.
    chmod 755 "$folder" "$folder/suite"
    if make --silent --jobs "$(nproc)" --directory "$folder/suite" >"$folder/log" 2>&1; then
        touch "$folder/suite/complete"
        mv --no-target-directory "$folder/suite" "$xfstests_cache/$xfstests_release"
        rm -r "$folder"
        return 0
    fi
    tail -n 20 "$folder/log" >&2
    rm -rf "$folder"
    fail "xfstests could not be built; the messages above say why"
}
