# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and tests/uml/run: a kernel that runs as a program (user-mode Linux), and the source tree of the
# same version, prepared to build modules against.
#
# The packages are unpacked, not installed: that works without root.
# shellcheck shell=bash

# One folder for each release, such as 6.1.176: linux.uml, modules/ (the package's) and tree/ (the source). Delete it, and
# scripts/deps fetches the newest.
uml_cache="${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/kernel-uml"

# Prints the folder of the newest release that is there; fails when there is none.
uml_folder() {
    local folders
    mapfile -t folders < <(find "$uml_cache" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*' 2>/dev/null | sort -V)
    [[ ${#folders[@]} -gt 0 ]] && printf '%s\n' "${folders[-1]}"
}

# download_package FOLDER PACKAGE[=VERSION]: leaves the package in FOLDER.
download_package() {
    (cd "$1" && apt-get --quiet --quiet --option APT::Sandbox::User=root download "$2")
}

# The source that the kernel was built from, in FOLDER/tree; of drivers only what configuring and headers need.
prepare_uml_tree() {
    local folder=$1 release=$2 version
    version="$(apt-cache madison linux-source-6.1 | awk -v release="$release" \
        'index($3, release "-") == 1 { print $3; exit }')"
    [[ -n $version ]] || { warn "apt knows no linux-source-6.1 of $release"; return 1; }
    download_package "$folder/packages" "linux-source-6.1=$version" || return 1
    mkdir "$folder/tree"
    dpkg-deb --fsys-tarfile "$folder"/packages/linux-source-6.1_*.deb |
        tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
        tar --extract --xz --directory "$folder/tree" --strip-components 1 --wildcards --exclude '*/drivers/*.c' \
            --exclude '*/drivers/gpu/*.h' --exclude '*/drivers/net/*.h' --exclude '*/sound/*.c' \
            --exclude '*/tools/testing/*' --exclude '*/Documentation/*.rst' || return 1
    zcat "$folder/doc/config.gz" >"$folder/tree/.config"
    make --silent --directory "$folder/tree" ARCH=um olddefconfig &&
        make --silent --jobs "$(nproc)" --directory "$folder/tree" ARCH=um modules_prepare
}

# unpack_uml FOLDER: prints nothing; leaves the release in FOLDER/release.
unpack_uml() {
    local folder=$1 release
    mkdir "$folder/packages" "$folder/doc"
    download_package "$folder/packages" user-mode-linux || return 1
    dpkg-deb --extract "$folder"/packages/user-mode-linux_*.deb "$folder/packages/uml" || return 1
    mv "$folder/packages/uml/usr/bin/linux.uml" "$folder/packages/uml/usr/lib/uml/modules" "$folder/"
    mv "$folder/packages/uml/usr/share/doc/user-mode-linux/config.gz" "$folder/doc/"
    release="$("$folder/linux.uml" --version)"
    printf '%s\n' "$release" >"$folder/release"
    prepare_uml_tree "$folder" "$release" || return 1
    rm -r "${folder:?}/packages"
}

provide_uml() {
    local folder release
    if uml_folder >/dev/null; then
        return 0
    fi
    as_root apt-get --quiet --quiet --option DPkg::Lock::Timeout=600 update
    say "unpacking a user-mode Linux and its source into $uml_cache: some minutes, 1.2 GB"
    mkdir -p "$uml_cache"
    folder="$(mktemp -d "$uml_cache/unpacking.XXXXXX")"
    if unpack_uml "$folder" && chmod 0755 "$folder"; then
        release="$(cat "$folder/release")"
        mv --no-target-directory "$folder" "$uml_cache/$release" && return 0
    fi
    rm -rf "$folder"
    fail "user-mode Linux could not be downloaded, unpacked or prepared; the messages above say why"
}
