# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Sourced by scripts/deps and tests/uml/run: newer kernels than the package of user-mode Linux has, built from source. One is
# as they are used, one (debug) checks itself: KASAN, lockdep, kmemleak, sleeping in atomic context.
# shellcheck shell=bash

# One folder for each release, such as 6.12.117: source/, and what was built of it, plain/ and debug/. Delete it, and
# scripts/deps builds the newest.
uml_built_cache="${XDG_CACHE_HOME:-$HOME/.cache}/tiffin/kernel-uml-built"
uml_built_package=linux-source-6.12

# Prints the folder of the newest build of KIND (plain, debug); fails when there is none.
uml_built_folder() {
    local kind=$1 folders
    mapfile -t folders < <(find "$uml_built_cache" -mindepth 3 -maxdepth 3 -path "*/$kind/complete" -printf '%h\n' 2>/dev/null |
        sort -V)
    [[ ${#folders[@]} -gt 0 ]] && printf '%s\n' "${folders[-1]}"
}

# What a test needs beside the architecture's defaults, for scripts/config of the kernel.
uml_built_config=(
    -d SOUND -d UML_NET -d NETDEVICES -d WIRELESS -d REISERFS_FS -d ISO9660_FS -d AUTOFS_FS -d IOSCHED_BFQ -d BLK_DEV_NBD
    -d IKCONFIG -d DEBUG_INFO -e DEBUG_INFO_NONE
    -d DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT -d CC_OPTIMIZE_FOR_SIZE -e CC_OPTIMIZE_FOR_PERFORMANCE -e EXPERT
    -d PREEMPT_NONE -e PREEMPT            # one processor: threads change places between any two instructions
    -e BLK_DEV -m BLK_DEV_RAM -m BLK_DEV_LOOP -e MD -m BLK_DEV_DM -m DM_FLAKEY -m DM_LOG_WRITES
    -e TMPFS_XATTR -e TMPFS_POSIX_ACL -e EXT4_FS_POSIX_ACL -e EXT4_FS_SECURITY -m FUSE_FS
    -e MEMCG -e NAMESPACES -e USER_NS -e PID_NS -e FANOTIFY -e IO_URING -e AIO -e FHANDLE -e SWAP -e LIBCRC32C
    -e SLUB_DEBUG -e DETECT_HUNG_TASK -e PRINTK_TIME --set-val LOG_BUF_SHIFT 18
)
uml_built_config_debug=(
    -e KASAN -e KASAN_GENERIC -e KASAN_OUTLINE -d KASAN_INLINE -e PROVE_LOCKING -e DEBUG_ATOMIC_SLEEP -e DEBUG_LIST
    -e DEBUG_VM -e FAULT_INJECTION -e FAILSLAB -e DEBUG_FS -e FAULT_INJECTION_DEBUG_FS -e DEBUG_KMEMLEAK -d DEBUG_KMEMLEAK_AUTO_SCAN -d DEBUG_KMEMLEAK_DEFAULT_OFF
)

# unpack_built_source FOLDER: the source, of drivers only what the kernels have and what configuring reads.
unpack_built_source() {
    local folder=$1
    mkdir "$folder/source"
    download_package "$folder" "$uml_built_package" || return 1
    dpkg-deb --fsys-tarfile "$folder"/linux-source-*.deb |
        tar --extract --to-stdout --wildcards './usr/src/linux-source-*.tar.xz' |
        tar --extract --xz --directory "$folder/source" --strip-components 1 --wildcards \
            --exclude '*/drivers/gpu/*.[ch]' --exclude '*/drivers/net/*/*.[ch]' --exclude '*/drivers/media/*.[ch]' \
            --exclude '*/drivers/staging/*.[ch]' --exclude '*/drivers/infiniband/*.[ch]' --exclude '*/sound/*.[ch]' \
            --exclude '*/tools/testing/*' --exclude '*/Documentation/*.rst' --exclude '*/arch/*/boot/dts/*' || return 1
    rm "$folder"/linux-source-*.deb
}

# build_uml_kernel FOLDER KIND: FOLDER/KIND, of FOLDER/source.
build_uml_kernel() {
    local folder=$1 kind=$2
    local build=(make --silent --directory "$folder/source" ARCH=um "O=$folder/$kind" CC=gcc-12 HOSTCC=gcc-12)
    local config=("${uml_built_config[@]}")
    [[ $kind != debug ]] || config+=("${uml_built_config_debug[@]}")
    mkdir "$folder/$kind"
    "${build[@]}" x86_64_defconfig >/dev/null &&
        (cd "$folder/$kind" && "$folder/source/scripts/config" "${config[@]}") &&
        "${build[@]}" olddefconfig &&
        "${build[@]}" --jobs "$(nproc)" linux modules &&
        touch "$folder/$kind/complete"
}

provide_uml_built() {
    local version release kind
    if uml_built_folder plain >/dev/null && uml_built_folder debug >/dev/null; then
        return 0
    fi
    as_root apt-get --quiet --quiet --option DPkg::Lock::Timeout=600 update
    version="$(apt-cache show --no-all-versions "$uml_built_package" | sed -n 's/^Version: //p')"
    release="${version%%-*}"
    [[ -n $release ]] || fail "apt knows no $uml_built_package"
    say "building user-mode Linux $release in $uml_built_cache, twice: half an hour, 3 GB"
    # Kernels name their source by its path, so they are built where they stay; `complete` says that one can be used.
    for kind in source plain debug; do
        if [[ -e $uml_built_cache/$release/$kind/complete ]]; then
            continue
        fi
        rm -rf "${uml_built_cache:?}/$release/$kind"
        mkdir -p "$uml_built_cache/$release"
        if [[ $kind == source ]]; then
            unpack_built_source "$uml_built_cache/$release" && touch "$uml_built_cache/$release/source/complete"
        else
            build_uml_kernel "$uml_built_cache/$release" "$kind"
        fi || fail "user-mode Linux $release could not be unpacked or built; the messages above say why"
    done
}
