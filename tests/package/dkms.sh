#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The package tiffin-dkms in a clean Debian 12: installing it has dkms build the modules for the kernel whose headers are there,
# other kernels are passed over, removing it leaves nothing, and modules that cannot be built do not make installing fail.
#
# usage: dkms.sh BUILD_FOLDER
#
# Exit status 77: not run.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
# shellcheck source=scripts/lib/clean_debian.sh
source "$repository/scripts/lib/clean_debian.sh"

fail() { echo "FAILED: $*" >&2; exit 1; }
skip() { echo "NOT RUN: $*"; exit 77; }
say() { echo "== $*"; }

[[ $# -ge 1 ]] || fail "usage: dkms.sh BUILD_FOLDER"
[[ $(id -u) -eq 0 ]] || skip "installing packages takes root"
[[ -s $clean_debian ]] || skip "there is no clean system; 'scripts/deps package' makes one"
if [[ ${2:-} != --inside ]]; then
    exec "$repository/tests/support/own_mounts" --pid --fork --kill-child -- "$0" "$1" --inside
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/tiffin-test.XXXXXX")
root=$work/root
trap remove_clean_debian EXIT

say "a clean system with dkms and a kernel's headers"
TIFFIN_BUILD=$1 "$repository/scripts/package" "$work/packages"
unpack_clean_debian "$root"
install_inside dkms g++-12 linux-headers-amd64 >"$work/log" 2>&1 || fail "apt: $(tail -n 20 "$work/log")"
cp "$work"/packages/tiffin-dkms_*.deb "$root/tiffin-dkms.deb"
# Another one, which the modules are not for.
mkdir -p "$root/lib/modules/5.10.0-1-amd64"
ln -s "$(cd "$root/lib/modules" && readlink -- 6.*/build)" "$root/lib/modules/5.10.0-1-amd64/build"
modules() { (cd "$root/lib/modules" && find . -name 'tiffin*.ko*' -printf '%P\n' | sort); }
install_package() {
    inside "${apt[@]}" install --yes --no-install-recommends /tiffin-dkms.deb >"$work/log" 2>&1 ||
        fail "apt: $(tail -n 40 "$work/log" "$root"/var/lib/dkms/tiffin/*/build/make.log)"
    cat "$work/log"
}
remove_package() {
    inside "${apt[@]}" purge --yes tiffin-dkms >"$work/log" 2>&1 || fail "apt: $(<"$work/log")"
    [[ -z $(modules) ]] || fail "left behind: $(modules)"
    ! compgen -G "$root/usr/src/tiffin-*" >/dev/null || fail "the sources are left behind"
    ! compgen -G "$root/var/lib/dkms/tiffin*" >/dev/null || fail "dkms still knows the modules"
}

say "installing"
install_package
[[ $(modules | sed -E 's|^6[^/]*/||') == $'updates/dkms/tiffin_tiffinfs.ko\nupdates/dkms/tiffin_vfs.ko' ]] ||
    fail "the modules are: $(modules)"
inside dkms status tiffin | grep -q '6\..*: installed$' || fail "dkms says: $(inside dkms status tiffin)"

say "removing"
remove_package

say "where they cannot be built"
mv "$root/usr/bin/g++-12" "$root/compiler"
install_package
[[ -z $(modules) ]] || fail "modules were built without a compiler"
grep -q 'Bad return status for module build' "$work/log" || fail "dkms does not say that they were not built"
mv "$root/compiler" "$root/usr/bin/g++-12"
remove_package
echo "passed"
