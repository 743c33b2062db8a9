# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and tests/package: a small Debian 12 to install packages into.
# shellcheck shell=bash disable=SC2154

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

# unpack_clean_debian ROOT: with /proc, devices, and this machine's resolver. For a process with mounts of its own.
unpack_clean_debian() {
    root=$1
    mkdir "$root"
    tar --extract --file "$clean_debian" --directory "$root" --exclude './dev/*'
    mount --types proc proc "$root/proc"
    mount --types tmpfs tmpfs "$root/dev"
    for device in null zero full random urandom tty fuse; do
        touch "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    ln -s /proc/self/fd "$root/dev/fd"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
}
# For EXIT: removes $work, in which the root lies.
remove_clean_debian() {
    local status=$? places i
    mapfile -t places < <(awk -v work="$work/" 'index($2, work) == 1 { print $2 }' /proc/self/mounts)
    for ((i = ${#places[@]} - 1; i >= 0; i--)); do
        umount --lazy "${places[i]}" || true
    done
    rm -rf --one-file-system "$work"
    exit "$status"
}

# Runs a command there.
inside() {
    chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"
}
apt=(apt-get --quiet --quiet --option Dpkg::Use-Pty=0 --option Acquire::Retries=3)
# install_inside PACKAGE...: what Debian has.
install_inside() {
    local install=("${apt[@]}" install --yes --no-install-recommends "$@")
    # Lists that are older than the archive name packages that are gone.
    inside "${install[@]}" || { inside "${apt[@]}" update && inside "${install[@]}"; }
}
