#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Handles of files, compared with those of ext4 in the same kernel; and, where the kernel has one, an NFS server on a mount of
# the module. Run by tests/uml/run.
set -euo pipefail
: "${repository:?tests/uml/run starts this}"
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
handles=$repository/tests/uml/handles.py
insmod "$kernel_modules/drivers/block/brd.ko" rd_nr=2 rd_size=100000
load_modules
make_file_system
mkfs.ext4 -q -F /dev/ram1
mkdir /tmp/ext4 /tmp/nfs
mount_device rw
mount -t ext4 /dev/ram1 /tmp/ext4

say "handles"
python3 "$handles" try /tmp/ext4 >/tmp/expected || fail "$(</tmp/expected)"
python3 "$handles" try "$mount_point" >/tmp/handles || fail "$(</tmp/handles)"
diff /tmp/expected /tmp/handles >/tmp/diff || fail "handles differ from ext4's: $(</tmp/diff)"
umount /tmp/ext4
python3 "$handles" guess "$mount_point" || fail "see above"
python3 "$handles" keep "$mount_point" /tmp/kept || fail "see above"
remount "handles"
python3 "$handles" find "$mount_point" /tmp/kept || fail "after a remount: see above"

# load_kernel_module FILE: with those that it needs.
load_kernel_module() {
    local needed
    for needed in $(sed -n "s|^kernel/$1: ||p" "$kernel_modules/../modules.dep" | tr ' ' '\n' | tac) "kernel/$1"; do
        grep -q "^$(basename "$needed" .ko | tr - _) " /proc/modules || insmod "$kernel_modules/../$needed"
    done
}

# start_server FLAGS: what rpc.nfsd, exportfs and mountd would do. FLAGS: of the export, as numbers of the kernel's.
server=/proc/fs/nfsd
start_server() {
    echo "-3 +4 +4.1 +4.2" >$server/versions
    mkdir -p /tmp/recovery
    echo /tmp/recovery >$server/nfsv4recoverydir
    echo 10 >$server/nfsv4leasetime
    echo 10 >$server/nfsv4gracetime
    echo "nfsd 127.0.0.1 2147483647 client" >/proc/net/rpc/auth.unix.ip/channel
    echo "client $mount_point 2147483647 $1 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
    printf "client 1 %s 2147483647 %s\n" "\\x00000000" "$mount_point" >/proc/net/rpc/nfsd.fh/channel
    echo "tcp 2049" >$server/portlist
    echo 4 >$server/threads
    echo Y >$server/v4_end_grace 2>/dev/null || true
}
stop_server() {
    echo 0 >$server/threads
    local cache
    for cache in auth.unix.ip nfsd.export nfsd.fh; do
        date +%s -d '1 minute' >"/proc/net/rpc/$cache/flush"
    done
}
mount_client() {
    mount -i -t nfs4 -o vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1,sec=sys 127.0.0.1:/ /tmp/nfs || fail "mount -t nfs4"
}

if [[ -e $kernel_modules/fs/nfsd/nfsd.ko ]]; then
    ip link set lo up
    load_kernel_module fs/nfsd/nfsd.ko
    load_kernel_module fs/nfs/nfsv4.ko
    mount -t nfsd nfsd $server
    insecure=2 no_subtree_check=$((0x400)) fsid=$((0x2000))
    # With a check of the tree above each file, handles name its directory, too.
    for flags in $((insecure | no_subtree_check | fsid)) $((insecure | fsid)); do
        say "a server, flags $flags"
        start_server $flags
        mount_client
        mkdir "/tmp/nfs/tree-$flags"
        cp -a /usr/include/linux "/tmp/nfs/tree-$flags/"
        # What the server knows it has to find again, by its handles.
        for _ in 1 2; do
            rsync -nac --hard-links --delete --out-format='%i %n' /usr/include/linux/ "/tmp/nfs/tree-$flags/linux/" >/tmp/diff
            [[ ! -s /tmp/diff ]] || fail "rsync sees differences: $(head -n 5 /tmp/diff)"
            drop_caches
        done
        exec {file}<>"/tmp/nfs/open-$flags"
        echo "kept" >&"$file"
        rm "/tmp/nfs/open-$flags" # by another name, until it is closed
        mv "$mount_point/tree-$flags" "$mount_point/moved-$flags"
        drop_caches
        echo "still" >&"$file"
        exec {file}>&-
        cmp /usr/include/linux/fs.h "/tmp/nfs/moved-$flags/linux/fs.h"
        setfattr -n user.name -v value "/tmp/nfs/moved-$flags/linux/fs.h"
        [[ $(getfattr --only-values -n user.name "$mount_point/moved-$flags/linux/fs.h") == value ]] || fail "an extended attribute"
        umount /tmp/nfs
        stop_server
        remount "a server, flags $flags"
    done

    say "what the client was told is durable"
    start_server $((insecure | no_subtree_check | fsid))
    mount_client
    sync
    mkdir /tmp/nfs/durable
    : >/tmp/nfs/durable/file
    ln -s target /tmp/nfs/durable/symlink
    mkfifo /tmp/nfs/durable/fifo
    ln /tmp/nfs/durable/file /tmp/nfs/durable/link
    mkdir /tmp/nfs/durable/removed
    rmdir /tmp/nfs/durable/removed
    mv /tmp/nfs/durable/fifo /tmp/nfs/durable/moved
    chmod 0741 /tmp/nfs/durable/link
    # Without writing anything that is not durable yet.
    python3 -c 'import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack("I", 2))' "$mount_point"
    umount -f /tmp/nfs 2>/dev/null || umount -l /tmp/nfs
    stop_server
    unmount_device
    mount_device rw
    found=$(cd "$mount_point" && find durable -printf '%p %y %m %n %l\n' | sort)
    [[ $found == "durable d 755 2 
durable/file f 741 2 
durable/link f 741 2 
durable/moved p 644 1 
durable/symlink l 777 1 target" ]] || fail "after a loss of what was not durable: $found"
    umount $server
fi
unmount_device
check_device "the end"
unload_modules
