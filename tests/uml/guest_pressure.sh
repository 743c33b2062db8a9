#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# The kernel's half of tests/uml/pressure. Run by tests/uml/run.
set -euo pipefail
# shellcheck source=tests/uml/lib/guest.sh
source "$(dirname "$0")/lib/guest.sh"
: "${repository:?tests/uml/run starts this}"
device=/dev/ubda
load_modules
make_file_system
mount_device rw

# numbers FROM: 120 MB that are nowhere in memory.
numbers() { seq "$1" "$(($1 + 13333332))"; }
say "files larger than memory, two at a time"
for round in 1 2; do
    numbers 10000000 >"$mount_point/first" &
    numbers 30000000 >"$mount_point/second" &
    wait %1 %2
    cmp <(numbers 10000000) "$mount_point/first" || fail "the first file, round $round"
    cmp <(numbers 30000000) "$mount_point/second" || fail "the second file, round $round"
done

say "stores to mappings larger than memory"
"$repository/tests/uml/mapped_stores.py" write "$mount_point/mapped" 150 || fail "see above"
"$repository/tests/uml/mapped_stores.py" verify "$mount_point/mapped" 150 || fail "see above"

say "more inodes than memory holds"
mkdir "$mount_point/many"
python3 - "$mount_point/many" <<'END' || fail "see above"
import os, sys
for number in range(30000):
    if number % 1000 == 0:
        os.mkdir(f"{sys.argv[1]}/{number // 1000}")
    with open(f"{sys.argv[1]}/{number // 1000}/{number}", "w") as file:
        file.write(str(number))
for number in range(30000):
    with open(f"{sys.argv[1]}/{number // 1000}/{number}") as file:
        if file.read() != str(number):
            sys.exit(f"file {number}")
END
unmount_device
check_device "at the end"
unload_modules
