#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The core on memory of the kernel: tests/vm/module. Run by tests/uml/run.
# shellcheck disable=SC2154  # its environment
set -eu
insmod "$modules/tiffin_core_test.ko"
rmmod tiffin_core_test
dmesg | grep 'tiffin: '
# Interrupts run on the same stack here, so that the module's own bound for it does not apply.
dmesg | grep -q 'tiffin: core steps: PASSED'
dmesg | grep -q 'tiffin: unload: PASSED'
! dmesg | grep 'tiffin: .*: FAILED' | grep -v 'core test: FAILED'
