# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and tests/vm/run: a kernel of Debian's, with what a module is built against.
#
# The packages are unpacked, not installed: that works without root, and leaves this machine's own
# kernel, boot loader and initramfs alone.
# shellcheck shell=bash

# One folder for each release, such as 6.1.0-42-amd64. Delete it, and scripts/deps fetches the newest.
kernel_cache="${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/kernel"

# What tests load, and file systems to compare with, below a release's folder of modules.
kernel_modules_needed=('arch/*' 'crypto/*' 'lib/*' 'drivers/block/*' 'drivers/infiniband/*' 'drivers/md/*' 'drivers/virtio/*'
    'drivers/net/veth.ko' 'fs/9p/*' 'fs/configfs/*' 'fs/fscache/*' 'fs/fuse/*' 'fs/netfs/*' 'net/9p/*' 'net/ipv4/udp_tunnel.ko'
    'net/ipv6/*' 'net/sched/sch_netem.ko' 'fs/ext4/*' 'fs/jbd2/*' 'fs/mbcache.ko' 'fs/xfs/*' 'fs/btrfs/*')

# Whether a kernel's folder has what tests/vm and bench/kernel load: those of earlier versions have not.
has_all_modules() {
    local name
    for name in rdma_rxe brd ext4 virtio_blk dm-mod; do
        [[ -n $(find "$1/lib/modules" -name "$name.ko" -print -quit) ]] || return 1
    done
}

# Prints the folder of the newest release that is there; fails when there is none.
kernel_folder() {
    local folders
    mapfile -t folders < <(find "$kernel_cache" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*' \
        2>/dev/null | sort -V)
    [[ ${#folders[@]} -gt 0 ]] && printf '%s\n' "${folders[-1]}"
}

# Prints the packages that PACKAGE depends on, those matching REGEX.
package_dependencies() {
    apt-cache depends --no-recommends --no-suggests "$1" | sed -n 's/^ *Depends: //p' | grep -E "$2"
}

# unpack_kernel RELEASE FOLDER: downloads the packages of a release and unpacks them into FOLDER.
unpack_kernel() {
    local release=$1 folder=$2 dependencies headers package archive
    mapfile -t dependencies < <(package_dependencies "linux-headers-$release" '^linux-(headers|kbuild)-')
    [[ ${#dependencies[@]} -gt 0 ]] || return 1
    mkdir "$folder/packages"
    (cd "$folder/packages" && apt-get --quiet --quiet --option APT::Sandbox::User=root download \
        "linux-image-$release" "linux-headers-$release" "${dependencies[@]}") || return 1
    for archive in "$folder"/packages/*.deb; do
        package="$(basename "$archive")"
        if [[ $package == linux-image-* ]]; then
            # Of its hundreds of megabytes of modules, only what tests load.
            dpkg-deb --fsys-tarfile "$archive" | tar --extract --directory "$folder" --wildcards \
                './boot/*' "${kernel_modules_needed[@]/#/./lib/modules/*/kernel/}" || return 1
        else
            dpkg-deb --extract "$archive" "$folder" || return 1
        fi
    done
    rm -r "${folder:?}/packages" "${folder:?}/usr/share"
    # The one absolute path in the headers.
    headers="$folder/usr/src/linux-headers-$release/Makefile"
    sed --in-place "s|^include /usr/src/|include $kernel_cache/$release/usr/src/|" "$headers"
}

provide_kernel() {
    local image folder
    if folder="$(kernel_folder)" && has_all_modules "$folder"; then
        return 0
    fi
    as_root apt-get --quiet --quiet --option DPkg::Lock::Timeout=600 update
    image="$(package_dependencies linux-image-amd64 '^linux-image-[0-9]')" ||
        fail "apt knows no package linux-image-amd64"
    local release=${image#linux-image-}
    say "unpacking the kernel $release into $kernel_cache"
    mkdir -p "$kernel_cache"
    # One that lacks modules is made anew.
    rm -rf "${kernel_cache:?}/$release"
    folder="$(mktemp -d "$kernel_cache/unpacking.XXXXXX")"
    if unpack_kernel "$release" "$folder" && chmod 0755 "$folder" &&
        mv --no-target-directory "$folder" "$kernel_cache/$release"; then
        return 0
    fi
    rm -rf "$folder"
    fail "the kernel $release could not be downloaded or unpacked; the messages above say why"
}
