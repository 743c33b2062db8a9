#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Faults that are planted in the module, to see that the checks would find them: promised room that is not given back, and, in
# a kernel with kmemleak, memory of the framework that is not released. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
# shellcheck source=tests/uml/lib/promises.sh
source "$(dirname "$0")/lib/promises.sh"
parameters=/sys/module/tiffin_vfs/parameters
make_device 200
load_modules
make_file_system

say "promises that are kept"
mount_device rw
echo 1 >$parameters/keeps_promises
! check_promises >/tmp/found || fail "nobody noticed that promised room is not given back"
grep -q "blocks are missing" /tmp/found || fail "something else was noticed: $(</tmp/found)"
echo 0 >$parameters/keeps_promises
unmount_device
mount_device rw
check_promises || fail "something is noticed without a fault"
unmount_device
check_device "promises that were kept"

if [[ -e $kmemleak ]]; then
    say "a mount that is not released"
    echo 1 >$parameters/leaks_mounts
    mount_device rw
    unmount_device
    echo 0 >$parameters/leaks_mounts
    # Not to be loaded again: KASAN would take a module's memory for what was there before.
    rmmod tiffin_tiffinfs tiffin_vfs
    ! check_leaks >/tmp/found || fail "kmemleak did not notice a mount that was not released"
    grep -q "unreferenced object" /tmp/found || fail "something else was noticed: $(</tmp/found)"
else
    unload_modules
fi
say "done"
