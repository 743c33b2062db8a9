# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps: a libfuse with the features that Tiffin can use.
# shellcheck shell=bash

libfuse_wanted=3.18
# cmake/TiffinFuse3.cmake looks here.
libfuse_prefix=/opt/tiffin/fuse3
# Debian suites that may have it, most settled first.
libfuse_suites=(forky sid)
libfuse_build_packages=(meson ninja-build dpkg-dev liburing-dev libnuma-dev)

libfuse_is_recent() {
    PKG_CONFIG_PATH="$libfuse_prefix/lib/pkgconfig" \
        pkg-config --atleast-version="$libfuse_wanted" fuse3 2>/dev/null
}

# Prints the address of the Debian archive that this system installs from.
debian_archive_uri() {
    # shellcheck disable=SC2016  # apt replaces these names
    apt-get indextargets --format '$(REPO_URI)' \
        'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1
}

# apt_for_suite SUITE FOLDER: makes FOLDER/apt.conf, with which apt knows only the sources of SUITE
# and keeps its state in FOLDER, so that the system's own apt state stays as it is.
apt_for_suite() {
    local suite=$1 folder=$2 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    uri="$(debian_archive_uri)"
    [[ -n $uri ]] || return 1
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    # apt checks the suite's signature with Debian's archive keys, and by it every file.
    printf 'deb-src [signed-by=%s] %s %s main\n' "$keyring" "$uri" "$suite" >"$folder/sources.list"
    cat >"$folder/apt.conf" <<END
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$folder/lists";
Dir::Cache "$folder/cache";
APT::Sandbox::User "root";
Acquire::Retries "2";
Acquire::Languages "none";
END
}

# Puts the unpacked source of a recent enough libfuse into FOLDER/source.
fetch_libfuse() {
    local folder=$1 suite version
    for suite in "${libfuse_suites[@]}"; do
        apt_for_suite "$suite" "$folder/$suite" || return 1
        export APT_CONFIG="$folder/$suite/apt.conf"
        apt-get --quiet --quiet update || continue
        version="$(apt-cache showsrc fuse3 2>/dev/null | sed -n 's/^Version: //p' | sort -V | tail -n 1)"
        dpkg --compare-versions "$version" ge "$libfuse_wanted" || continue
        (cd "$folder/$suite" && apt-get --quiet --quiet --download-only source "fuse3=$version") ||
            continue
        # apt has compared the files with the signed index; what dpkg-source would check are the
        # personal keys of Debian's developers.
        dpkg-source --no-check --extract "$folder/$suite"/fuse3_*.dsc "$folder/source" >/dev/null ||
            continue
        printf 'fuse3 %s, source package of Debian %s\n' "$version" "$suite" >"$folder/origin"
        return 0
    done
    return 1
}

# Builds FOLDER/source and installs it into the prefix, in one step at the end.
build_libfuse() {
    local folder=$1 stage=$1/stage
    if ! (
        meson setup "$folder/build" "$folder/source" \
            --prefix "$libfuse_prefix" --libdir lib --sysconfdir /etc --buildtype release \
            --default-library both -Dutils=true -Dexamples=false -Dtests=false -Duseroot=false \
            -Denable-io-uring=true -Dinitscriptdir= -Dudevrulesdir=/unused &&
            ninja -C "$folder/build" &&
            DESTDIR="$stage" meson install -C "$folder/build"
    ) >"$folder/log" 2>&1; then
        tail -n 20 "$folder/log" >&2
        return 1
    fi
    # Of the helper programs only fusermount3 is kept: Debian 12's mounts for this libfuse too, but
    # does not understand auto_unmount when root asks for it. It is setuid as Debian's is.
    rm -rf "$stage$libfuse_prefix/sbin" "$stage$libfuse_prefix/share" &&
        cp "$folder/origin" "$stage$libfuse_prefix/ORIGIN" &&
        as_root mkdir -p "$(dirname "$libfuse_prefix")" &&
        as_root rm -rf "$libfuse_prefix" &&
        as_root cp -r "$stage$libfuse_prefix" "$libfuse_prefix" &&
        as_root chown -R root:root "$libfuse_prefix" &&
        as_root chmod 4755 "$libfuse_prefix/bin/fusermount3"
}

# libfuse's example passthrough_hp, with which bench/ compares: a FUSE file system that hands everything on.
provide_passthrough() {
    local folder
    [[ ! -x $libfuse_prefix/bin/passthrough_hp ]] || return 0
    install_packages "${libfuse_build_packages[@]}"
    folder="$(mktemp -d)"
    chmod 0755 "$folder"
    say "building libfuse's example passthrough_hp"
    if (fetch_libfuse "$folder" &&
        meson setup "$folder/build" "$folder/source" --buildtype release --default-library static \
            -Dutils=false -Dexamples=true -Dtests=false -Duseroot=false \
            -Dinitscriptdir= -Dudevrulesdir=/unused &&
        ninja -C "$folder/build" example/passthrough_hp) >"$folder/log" 2>&1; then
        as_root mkdir -p "$libfuse_prefix/bin" &&
            as_root cp "$folder/build/example/passthrough_hp" "$libfuse_prefix/bin/"
    else
        tail -n 20 "$folder/log" >&2
        warn "no passthrough_hp: comparisons leave it out"
    fi
    rm -rf "$folder"
}

provide_libfuse() {
    if [[ -n ${TIFFIN_SYSTEM_FUSE:-} ]] || libfuse_is_recent; then
        return 0
    fi
    local folder
    install_packages "${libfuse_build_packages[@]}"
    folder="$(mktemp -d)"
    chmod 0755 "$folder"
    say "building libfuse $libfuse_wanted or newer from Debian's source package"
    # A subshell, since apt's configuration goes into the environment.
    if (fetch_libfuse "$folder" && build_libfuse "$folder"); then
        say "installed $(cat "$libfuse_prefix/ORIGIN") into $libfuse_prefix"
    else
        warn "no libfuse $libfuse_wanted: going on with the system's $(pkg-config --modversion fuse3)," \
            "which has fewer features. Run scripts/deps again to retry."
    fi
    rm -rf "$folder"
}
