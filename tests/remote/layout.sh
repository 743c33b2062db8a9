#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume that is striped over three servers with disks, all of which are started anew: it is found as it was made
# without stripe=, and refused in another order, with another stripe, without one of its servers and with a
# foreign one. What an earlier version of tiffind kept without the layout can only be read.
#
# usage: layout.sh
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"
need_programs python3 pgrep sha256sum

top=$work
declare -A keepers ports
# on NAME COMMAND...: what lib/server.sh has, with the variables of that server.
on() {
    local name=$1
    shift
    work=$top/$name admin=$top/$name/run/admin.sock server_log=$top/$name/tiffind.log
    keeper=${keepers[$name]:-} port=${ports[$name]:-}
    "$@"
    keepers[$name]=$keeper ports[$name]=$port
    work=$top
}
stop_all() {
    local status=$? name
    trap - EXIT
    for name in "${!keepers[@]}"; do
        on "$name" clean_up_server status
    done
    work=$top
    clean_up "$status"
}
trap stop_all EXIT

make_books() { make_volume books 32M --backing "$work/backing" >/dev/null; }
for name in a b c foreign; do
    mkdir "$top/$name"
    on "$name" start_server
    on "$name" make_books
done
# address_of NAME...: of the volume on these servers in this order.
address_of() {
    local name hosts="" keys=$top/keys
    for name in "$@"; do
        keys+=-$name
    done
    : >"$keys"
    chmod 600 "$keys"
    for name in "$@"; do
        hosts+=${hosts:+,}127.0.0.1:${ports[$name]}
        cat "$top/$name/books.key" >>"$keys"
    done
    echo "tiffin://$hosts/books?key_file=$keys&transport=tcp"
}
# refuses TEXT ADDRESS: to read, to mount, to mount by force and to make a file system.
refuses() {
    local output command
    for command in "tiffin info" "mount.tiffin" "mount.tiffin -o force" "mkfs.tiffin -f"; do
        local -a words=()
        read -ra words <<<"$command"
        local -a arguments=("${words[@]:1}" "$2")
        [[ ${words[0]} != mount.tiffin ]] || arguments+=("$mount_point")
        ! output=$("$bin/${words[0]}" "${arguments[@]}" 2>&1) || fail "succeeded: $command $2"
        [[ $output == *"$1"* ]] || fail "$command $2 said '$output', expected '$1'"
    done
}
check_content() {
    check_device "$1"
    mount_device
    (cd "$mount_point" && sha256sum --check --quiet "$top/sums") || fail "content differs $1"
    [[ $(find "$mount_point" -type f | wc -l) -eq 30 ]] || fail "there are not 30 files $1"
    "$bin/tiffin" status "$mount_point" | grep -qx "stripe: 64 KiB over 3 servers" || fail "another stripe $1"
    unmount_device
}
start_all_again() {
    local name
    for name in a b c foreign; do
        on "$name" "$1"
    done
    for name in a b c foreign; do
        on "$name" start_server
    done
}

say "30 files on three servers"
right=$(address_of a b c)
use_device "$right&stripe=64K"
mount_device
for i in {1..30}; do
    head -c $((i * 10000)) /dev/urandom >"$mount_point/$i"
done
(cd "$mount_point" && sha256sum -- * >"$top/sums")
unmount_device
device=$right
"$bin/mkfs.tiffin" -q -f "$(address_of foreign)" || fail "no file system on one server"

for end in stop_server kill_server; do
    say "all started anew after $end"
    start_all_again "$end"
    layout="it consists of 127.0.0.1:${ports[a]}, 127.0.0.1:${ports[b]}, 127.0.0.1:${ports[c]}, in this order, with stripe=65536"
    refuses "$layout" "$(address_of a c b)"
    refuses "$layout" "$(address_of b a c)&stripe=64K"
    refuses "$layout" "$right&stripe=256K"
    refuses "is one of 3, and 2 servers are given" "$(address_of a b)"
    refuses "is one of 3, and 1 server is given" "$(address_of a)"
    refuses "is one of 1, and 3 servers are given" "$(address_of foreign b c)"
    refuses "is one of 1, and 3 servers are given" "$(address_of a b foreign)"
    check_content "after $end"
done

say "one of them without its layout"
# forget NAME...: the state files of an earlier version.
forget() {
    local name
    for name in "$@"; do
        python3 - "$top/$name/state/books.volume" <<'END'
import sys
table = []
for i in range(256):
    for _ in range(8):
        i = (i >> 1) ^ 0x82f63b78 if i & 1 else i >> 1
    table.append(i)
def crc32c(data):
    value = 0xffffffff
    for byte in data:
        value = table[(value ^ byte) & 255] ^ (value >> 8)
    return value ^ 0xffffffff
lines = open(sys.argv[1], "rb").read().splitlines(keepends=True)
assert lines[-1] == b"checksum %08x\n" % crc32c(b"".join(lines[:-1]))
assert any(line.startswith(b"words ") for line in lines)
text = b"".join(line for line in lines[:-1] if not line.startswith(b"words "))
open(sys.argv[1], "wb").write(text + b"checksum %08x\n" % crc32c(text))
END
    done
}
start_forgetful() {
    local name
    for name in a b c; do
        on "$name" stop_server
    done
    forget "$@"
    for name in a b c; do
        on "$name" start_server
    done
}
start_forgetful b
refuses "$layout" "$(address_of a c b)"
check_content "with what two servers know"
start_forgetful a c
refuses "$layout" "$(address_of c b a)"
check_content "with what the server knows that had forgotten"

say "all of them without"
start_forgetful a b c
for command in "mount.tiffin $right&stripe=64K $mount_point" "mount.tiffin -o force $right $mount_point" \
    "mkfs.tiffin -f $right"; do
    read -ra words <<<"$command"
    ! output=$("$bin/${words[0]}" "${words[@]:1}" 2>&1) || fail "succeeded: $command"
    [[ $output == *"can only be read: mount it with -o ro and stripe=SIZE"* ]] || fail "$command said '$output'"
done
! output=$("$bin/tiffin" info "$right" 2>&1) || fail "read without stripe="
[[ $output == *"name the servers in the order of its making, with the stripe=SIZE"* ]] || fail "said '$output'"
device="$right&stripe=64K"
mount_device ro
(cd "$mount_point" && sha256sum --check --quiet "$top/sums") || fail "content differs"
unmount_device
echo "passed"
