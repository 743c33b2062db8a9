#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The Debian packages: lintian finds no error; a clean Debian 12 installs them with nothing but what they depend on,
# its programs make, mount and check volumes, systemd runs the server in the unit's confinement, an upgrade keeps the
# server's memory, and removing the packages leaves nothing behind.
#
# usage: clean_system.sh BUILD_FOLDER
#
# Exit status 77: not run.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
# shellcheck source=scripts/lib/clean_debian.sh
source "$repository/scripts/lib/clean_debian.sh"

fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "NOT RUN: $*"; exit 77; }
say() { echo "== $*"; }

[[ $# -ge 1 ]] || fail "usage: clean_system.sh BUILD_FOLDER"
[[ $(id -u) -eq 0 ]] || skip "installing packages and mounting take root"
[[ -c /dev/fuse ]] || skip "/dev/fuse is missing"
[[ -s $clean_debian ]] || skip "there is no clean system; 'scripts/deps package' makes one"
command -v lintian >/dev/null || skip "lintian is missing; 'scripts/deps package' installs it"

if [[ ${2:-} != --inside ]]; then
    # What runs and what is mounted inside goes away with the two name spaces.
    exec "$repository/tests/support/own_mounts" --pid --fork --kill-child -- "$0" "$1" --inside
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/tiffin-test.XXXXXX")
root=$work/root
trap remove_clean_debian EXIT

say "packages"
TIFFIN_BUILD=$1 "$repository/scripts/package" "$work/packages"
lintian --allow-root --fail-on error "$work"/packages/*.deb || fail "lintian found errors"

dpkg-deb --contents "$work"/packages/tiffin-dkms_*.deb >"$work/contents"
for file in dkms.conf kmod/build fs/tiffinfs/format.h scripts/lib/common.sh; do
    grep -q "/usr/src/tiffin-[0-9.]*/$file\$" "$work/contents" || fail "tiffin-dkms lacks $file"
done
dpkg-deb --contents "$work"/packages/tiffin-dev_*.deb >"$work/contents"
for file in include/tiffin/fs/vfs/file_system.h lib/libtiffin.a lib/pkgconfig/tiffin.pc share/doc/tiffin-dev/examples/squares.cc; do
    grep -q " ./usr/$file\$" "$work/contents" || fail "tiffin-dev lacks $file"
done

say "a clean system"
unpack_clean_debian "$root"
mkdir "$root/packages"
cp "$work"/packages/*.deb "$root/packages"

say "installing"
install_inside fuse3 >"$work/log" 2>&1 || fail "apt cannot install fuse3: $(<"$work/log")"
paths() { (cd "$root" && find etc lib sbin usr var -not -type d | sort); }
paths >"$work/before"
rm "$root"/packages/tiffin-dkms_*.deb "$root"/packages/tiffin-dev_*.deb  # need compilers, and have tests of their own
inside bash -c '"$@" /packages/*.deb' install "${apt[@]}" install --yes --no-install-recommends >"$work/log" 2>&1 ||
    fail "apt: $(<"$work/log")"
inside dpkg --verify tiffin tiffin-server || fail "installed files differ"
inside getent passwd tiffind >/dev/null || fail "the package has not made the user that the server runs as"

say "a volume in an image"
cat >"$root/try" <<'END'
set -euo pipefail
mkfs.tiffin -q -L books /image 64M
mkdir /mnt/books
mount -t fuse.tiffin /image /mnt/books
cp -r /usr/share/doc /mnt/books
diff -r /usr/share/doc /mnt/books/doc
tiffin status /mnt/books | grep -x "state: read-write"
umount /mnt/books
fsck.tiffin -n -f /image

# A user mounts with the fusermount3 of Debian.
user=(setpriv --reuid 65534 --regid 65534 --clear-groups)
install -d -o 65534 -g 65534 /user /user/mnt
"${user[@]}" mount.tiffin mem:16M /user/mnt
"${user[@]}" touch /user/mnt/file
"${user[@]}" fusermount3 -u /user/mnt
END
inside bash /try >"$work/log" 2>&1 || fail "in the clean system: $(<"$work/log")"

say "systemd runs the server"
cat >"$root/etc/systemd/system/try.service" <<'END'
[Unit]
After=tiffind.service
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'bash -x /try >/log 2>&1 && touch /succeeded; exec systemctl poweroff -ff'
END
cat >"$root/try" <<'END'
set -euo pipefail
is_mounted_by() { tiffin status /mnt/books | grep -q "transport: $1"; }
systemctl is-active tiffind
main=$(systemctl show --property MainPID --value tiffind)
[[ $(stat -c %U "/proc/$main" /var/lib/tiffind /run/tiffind | sort -u) == tiffind ]]
for ((i = 0; i < 100; i++)); do
    ! tiffin volume create books 64M --key-file /key || break
    sleep 0.1
done
mkfs.tiffin -q 'tiffin://127.0.0.1/books?key_file=/key'
for transport in tcp sdr shm; do
    address="tiffin://127.0.0.1/books?key_file=/key&transport=$transport"
    mount.tiffin "$address" /mnt/books
    is_mounted_by "$transport"
    cp -r /usr/share/doc "/mnt/books/$transport"
    # Not before the mount has given the volume back.
    [[ $transport == shm ]] || { umount /mnt/books && fsck.tiffin -n "$address"; }
done
# Each file: FUSE does not pass syncfs on.
find /mnt/books/shm -print0 | xargs --null sync
# Another user's process that maps the memory: the server has to end it.
mkdir /mnt/other
mount.tiffin "$address" /mnt/other -o force
diff -r /usr/share/doc /mnt/other/shm
! ls /mnt/books || exit 1
systemctl reload tiffind
tiffin volume create kept 64M --backing /var/lib/tiffind/kept.img --key-file /kept.key
# An upgrade.
dpkg --install /packages/tiffin-server_*.deb
[[ $(systemctl show --property MainPID --value tiffind) == "$main" ]]
for ((i = 0; i < 100; i++)); do
    ! journalctl --unit tiffind | grep "volume books: .* memory kept" || break
    sleep 0.1
done
((i < 100))
diff -r /usr/share/doc /mnt/other/tcp
touch /mnt/other/file
umount /mnt/other
systemctl stop tiffind
[[ $(systemctl show --property Result,ExecMainStatus --value tiffind | xargs) == "success 0" ]]
END
ln -s ../try.service "$root/etc/systemd/system/multi-user.target.wants/try.service"
# As an init of its own: with its processes, control groups, network and mounts.
cat >"$work/boot" <<'END'
set -euo pipefail
ip link set lo up
mount --bind "$1" "$1"
cd "$1"
mount --types proc proc proc
mount --types tmpfs -o mode=755 tmpfs dev
mount --types tmpfs tmpfs run
mount --types sysfs -o ro sysfs sys
mount --types cgroup2 cgroup2 sys/fs/cgroup
for device in null zero full random urandom tty fuse; do
    touch "dev/$device"
    mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm old
ln -s /proc/self/fd dev/fd
pivot_root . old
umount --lazy /old
exec env -i container=tiffin PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=console
END
timeout --kill-after 5 60 unshare --mount --propagation private --pid --cgroup --net --fork --kill-child \
    bash "$work/boot" "$root" </dev/null >"$work/log" 2>&1 || true
[[ -e $root/succeeded ]] ||
    fail "under systemd: $(tail -n 20 "$root/log" || true); systemd: $(tail -n 20 "$work/log")"
rm -r "$root"/etc/systemd/system/{try.service,multi-user.target.wants/try.service} "$root"/{try,log,succeeded,key,kept.key,old}

say "removing"
inside "${apt[@]}" purge --yes tiffin tiffin-server >"$work/log" 2>&1 || fail "apt: $(<"$work/log")"
inside "${apt[@]}" autoremove --purge --yes >>"$work/log" 2>&1 || fail "apt: $(<"$work/log")"
rm -f "$root/packages"/*
# Not of apt, dpkg, systemd and the dynamic linker. Volumes of the server, with their keys, are kept on purpose.
paths | comm -13 "$work/before" - |
    grep -vE '^(var/(cache|lib/(apt|dpkg|systemd|tiffind)|log)/|etc/ld.so.cache)' >"$work/left" || true
[[ ! -s $work/left ]] || fail "left behind: $(<"$work/left")"
echo "passed"
