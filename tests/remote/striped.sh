#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# A volume that is striped over two servers: mounted, one of them killed, its order kept.
# With shm one of the servers is reached by shared memory, the other one, whose sockets are elsewhere, is not.
#
# usage: striped.sh [tcp|shm|sdr]
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/../mount/lib/device.sh"
# shellcheck source=tests/remote/lib/server.sh
source "$(dirname "$0")/lib/server.sh"

# Two servers: what belongs to the first one is kept here while the variables speak of the second.
top=$work
first_keeper=""
stop_both() {
    local status=$?
    trap - EXIT
    clean_up_server status
    keeper=$first_keeper
    clean_up_server status
    work=$top
    clean_up "$status"
}
trap stop_both EXIT

mkdir "$top/a" "$top/b"
work=$top/a admin=$top/a/run/admin.sock
start_server
make_volume books 128M >/dev/null
first_keeper=$keeper first_port=$port
work=$top/b admin=$top/b/run/admin.sock keeper="" port=""
start_server
make_volume books 128M >/dev/null
work=$top
cat "$top/a/books.key" "$top/b/books.key" >"$work/both.key"
cat "$top/b/books.key" "$top/a/books.key" >"$work/turned.key"
chmod 600 "$work/both.key" "$work/turned.key"
hosts=127.0.0.1:$first_port,127.0.0.1:$port
turned=127.0.0.1:$port,127.0.0.1:$first_port

way="transport=tcp" over_tcp=2
if [[ $transport == shm ]]; then
    way="transport=auto&runtime_directory=$top/a/run" over_tcp=1
fi

say "two servers"
use_device "tiffin://$hosts/books?key_file=$work/both.key&stripe=64K&$way"
mount_device
cp -a "$repository/docs" "$mount_point/docs"
head -c 50000000 /dev/urandom >"$work/data"
cp "$work/data" "$mount_point/data"
victim=$(worker)
kill -KILL "$victim"
wait_until has_ended "$victim"
cp "$work/data" "$mount_point/again"
[[ $("$bin/tiffin" status "$mount_point" | grep -c "transport: tcp") -eq $over_tcp ]] || fail "not two servers"
"$bin/tiffin" status "$mount_point" | grep -qx "stripe: 64 KiB over 2 servers" || fail "not striped"
unmount_device

say "only as it was made"
refuses "name the servers in their order" "$bin/tiffin" info "tiffin://$turned/books?key_file=$work/turned.key"
refuses "is one of 2" "$bin/mkfs.tiffin" -f "tiffin://127.0.0.1:$port/books?key_file=$top/b/books.key"
refuses "was made with stripe=65536" "$bin/tiffin" info "tiffin://$hosts/books?key_file=$work/both.key&stripe=4K"
device="tiffin://$hosts/books?key_file=$work/both.key&$way"
check_device "after it was killed"
mount_device
cmp "$work/data" "$mount_point/data" || fail "the data differ"
cmp "$work/data" "$mount_point/again" || fail "what was written to a killed server differs"
diff -r "$repository/docs" "$mount_point/docs" >"$work/diff" || fail "the copy differs"

say "a second writer"
second=$work/second
mkdir "$second"
refuses "is being written by $(hostname), process $server" "$bin/mount.tiffin" "$device" "$second"
refuses "is being written by $(hostname), process $server" "$bin/mkfs.tiffin" -f "$device"
echo mine >"$mount_point/still-mine"
sync "$mount_point/still-mine"

say "a takeover of both servers"
old_server=$server
"$bin/mount.tiffin" "$device" "$second" -o "force,log=$work/second.log" || fail "no takeover"
server=$("$bin/tiffin" status "$second" | sed -n 's/^process: //p')
cp "$work/data" "$second/new"
sync "$second/new"
! { cp "$work/data" "$mount_point/more" && sync "$mount_point/more"; } 2>/dev/null || fail "the old holder still writes"
if [[ $transport == shm ]]; then
    # The memory of one server can only be taken from a process with its life.
    has_ended "$old_server" || fail "the old holder lives"
else
    grep -q "another client has taken the volume" "$log" || fail "the old holder's log does not say so"
fi
take_away -l
wait_until has_ended "$old_server"
umount "$second"
wait_until has_ended "$server"
server=""
check_device "after a takeover"
mount_device
[[ $(<"$mount_point/still-mine") == mine ]] || fail "the old holder's file differs"
for copy in data again new; do
    cmp "$work/data" "$mount_point/$copy" || fail "$copy differs"
done
[[ ! -s $mount_point/more ]] || fail "a write of the old holder has landed"

say "growing, when both have"
resize() { "$bin/tiffin" volume resize books 256M --socket "$top/$1/run/admin.sock" >/dev/null; }
grow() { "$bin/tiffin" grow "$mount_point"; }
resize a
grow | grep -q "all that the device has" || fail "it has grown with one of the servers"
resize b
grow | grep -q "grown from 256" || fail "it has not grown"
head -c 200000000 /dev/urandom >"$work/large"
cp "$work/large" "$mount_point/large"
unmount_device
check_device "after it has grown"
mount_device
cmp "$work/large" "$mount_point/large" || fail "what was written to the new part differs"
unmount_device
echo "passed"
