#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The sources that the package tiffin-dkms has are all that the kernel modules need: they build where nothing else is, by the
# command of their dkms.conf, against the headers of Debian's kernel. dkms.sh asks dkms itself, and takes longer.
#
# usage: modules.sh BUILD_FOLDER
#
# Exit status 77: not run.
set -euo pipefail
repository=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
# shellcheck source=scripts/lib/kernel.sh
source "$repository/scripts/lib/kernel.sh"
fail() { echo "FAILED: $*" >&2; exit 1; }

[[ $# -eq 1 ]] || fail "usage: modules.sh BUILD_FOLDER"
kernel=$(kernel_folder) || { echo "NOT RUN: there is no kernel; 'scripts/deps vm' unpacks one"; exit 77; }
# dkms.conf uses the name.
# shellcheck disable=SC2034
kernel_source_dir=$kernel/usr/src/linux-headers-$(basename "$kernel")
# Always the same folder: what ccache knows depends on it.
work=$(realpath "$1")/package_modules
rm -rf "$work"
trap 'rm -rf "$work"' EXIT

cmake --install "$1" --prefix "$work/usr" >/dev/null
mkdir -p "$work/tiffin"
cp -r "$work"/usr/src/tiffin-*/. "$work/tiffin"
cd "$work/tiffin"
# shellcheck disable=SC1091
source ./dkms.conf
# As dkms does, and without this repository.
env --unset=repository bash -c "${MAKE[0]}" || fail "the modules could not be built"
for number in "${!BUILT_MODULE_NAME[@]}"; do
    module=${BUILT_MODULE_LOCATION[number]}/${BUILT_MODULE_NAME[number]}.ko
    [[ -s $module ]] || fail "there is no $module"
    [[ $(modinfo --field vermagic "$module") == "$(basename "$kernel") "* ]] ||
        fail "$module is for '$(modinfo --field vermagic "$module")'"
done
