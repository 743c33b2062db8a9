#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# How a mount begins and ends: in the background and in the foreground, with options, by umount, by
# signals, by kill -9; and what is said when it cannot be made.
set -euo pipefail
# shellcheck source=tests/mount/lib/fuse.sh
source "$(dirname "$0")/lib/fuse.sh"

# ---- What cannot be mounted, and why -------------------------------------------------------------
touch "$work/file"
expect_failure "does not exist" "$mount_program" none "$work/missing"
expect_failure "not a directory" "$mount_program" none "$work/file"
expect_failure 'unknown mount option "color"' "$mount_program" none "$mount_point" -o ro,color
expect_failure "wants a size" "$mount_program" none "$mount_point" -o cache=much
expect_failure "wants a value" "$mount_program" none "$mount_point" -o commit
expect_failure "wants a number" "$mount_program" none "$mount_point" -o max_threads=0
expect_failure "wants remount-ro or continue" "$mount_program" none "$mount_point" -o errors=panic
expect_failure 'no file system "nofs"' "$mount_program" --fs nofs none "$mount_point"
expect_failure "not on a Tiffin mount" "$tiffin" status "$mount_point"
is_mounted && fail "a mount that failed left something behind"

# ---- The background, and umount ------------------------------------------------------------------
mount_it -o noatime,nodev,x-comment=1,_netdev,nofail,defaults
[[ $(stat -f -c %T "$mount_point") == fuseblk || $(stat -f -c %T "$mount_point") == fuse ]] ||
    fail "not a FUSE mount"
[[ $(df -T "$mount_point" | awk 'NR == 2 { print $2 }') == fuse.tiffin ]] || fail "df -T does not say fuse.tiffin"
[[ $(df "$mount_point" | awk 'NR == 2 { print $1 }') == none ]] || fail "df does not show the device"
echo content >"$mount_point/file"
[[ $(<"$mount_point/file") == content ]] || fail "what was written is not there"
"$tiffin" status "$mount_point" | grep -qx "options: noatime,nodev,x-comment=1,_netdev,nofail,defaults" ||
    fail "the status lacks the options"
"$tiffin" version "$mount_point" | grep -q "^$mount_point [0-9]" || fail "no version of the mount"
"$tiffin" stats "$mount_point" | grep -q "^CREATE  *1 " || fail "the creation was not counted"
"$tiffin" scrub "$mount_point" | grep -q "no errors" || fail "scrub"
expect_failure "is in use" "$mount_program" none "$mount_point"
process=$(server)
[[ $(readlink "/proc/$process/cwd") == / ]] || fail "the server keeps its starter's folder busy"
[[ $(readlink "/proc/$process/fd/2") == /dev/null ]] || fail "the server keeps the terminal"
unmount_it

# ---- How the threads wait ------------------------------------------------------------------------
# statfs is never answered from a cache: each is one request, right after the answer to the last.
requests_met_polling() {
    mount_it -o busy_poll_us="$1"
    python3 -c "import os; [os.statvfs('$mount_point') for i in range(3000)]"
    "$tiffin" status "$mount_point" | sed -n 's/^requests met while polling: //p'
    unmount_it
}
[[ $(requests_met_polling 0) == 0 ]] || fail "threads poll with busy_poll_us=0"
# On a busy machine a thread may be kept from its processor whenever it would poll, but not in every mount. With one
# processor nobody polls.
polls() {
    local i
    for ((i = 0; i < 20; i++)); do
        [[ $(requests_met_polling 1000) -le 100 ]] || return 0
    done
    return 1
}
[[ $(nproc) -eq 1 ]] || polls || fail "threads do not poll"

# Idle processors are kept awake while requests come. Other mounts may ask the kernel for less at the same time, so the
# number of times is the mount's own, and what the kernel knows is at most what the mount has asked for.
wishes() { "$tiffin" status "$mount_point" | sed -n 's/^processors wake up within: .*asked for \([0-9]*\) times.*/\1/p'; }
wishes_now() { "$tiffin" status "$mount_point" | grep -q '^processors wake up within: .*, now$'; }
wishes_nothing() { ! wishes_now; }
# Asks for things until the mount has wished so many times. A thread that sleeps over each request notes no burst.
asks_until_wished() {
    python3 - "$mount_point" "$tiffin" "$1" <<'END'
import os, re, struct, subprocess, sys, time
mount_point, tiffin, count = sys.argv[1:]
end = time.monotonic() + 60
while True:
    for i in range(2000):
        os.statvfs(mount_point)
    status = subprocess.run([tiffin, "status", mount_point], capture_output=True, text=True, check=True).stdout
    wish = re.search(r"asked for (\d+) times(, now)?", status)
    assert time.monotonic() < end, "no wish: " + wish[0]
    if int(wish[1]) < int(count) or not wish[2]:
        continue
    # The wish may have ended since, on a busy machine.
    if struct.unpack("i", open("/dev/cpu_dma_latency", "rb").read(4))[0] <= 3:
        break
END
}
if [[ -w /dev/cpu_dma_latency && $(nproc) -gt 1 ]]; then
    mount_it -o cpu_latency_us=3
    [[ $(wishes) -eq 0 ]] || fail "it asks for latency while nothing is asked of it"
    asks_until_wished 1 || fail "it does not ask for latency while requests come"
    wait_until wishes_nothing
    asks_until_wished 2 || fail "it does not ask for latency a second time"
    unmount_it
else
    echo "cpu_latency_us: not tried: /dev/cpu_dma_latency cannot be written, or there is one processor"
fi
mount_it -o cpu_latency_us=none
[[ $("$tiffin" status "$mount_point") == *"processors wake up within: any time"* ]] || fail "cpu_latency_us=none"
unmount_it

# ---- Signals -------------------------------------------------------------------------------------
for signal in TERM INT HUP; do
    mount_it -o log="$work/log"
    process=$(server)
    kill -s "$signal" "$process"
    wait_until has_ended "$process"
    is_mounted && fail "SIG$signal left the mount behind"
done
# What means nothing to a mount does nothing.
mount_it
process=$(server)
for signal in PIPE USR1 USR2 ALRM VTALRM PROF IO PWR STKFLT XCPU XFSZ RTMIN RTMAX; do
    kill -s "$signal" "$process"
    stat -f "$mount_point" >/dev/null || fail "SIG$signal has ended the server"
done
[[ $(server) == "$process" ]] || fail "the server is another one"
unmount_it
# With a file in use: the mount goes away and the process ends all the same.
mount_it -o log="$work/log"
exec 9>"$mount_point/open"
echo data >&9
process=$(server)
kill -s TERM "$process"
wait_until has_ended "$process"
exec 9>&-
is_mounted && fail "SIGTERM with an open file left the mount behind"
grep -q "the mount is in use" "$work/log" || fail "the log does not say that files were open"

# ---- io_uring ------------------------------------------------------------------------------------
# libfuse's own loop serves it.
if [[ $(cat /sys/module/fuse/parameters/enable_uring 2>/dev/null) == Y ]]; then
    for end in umount signal; do
        mount_it -o io_uring,log="$work/log"
        process=$(server)
        "$tiffin" status "$mount_point" | grep -q "^FUSE features: .*io_uring" || fail "io_uring is not used"
        for i in 1 2 3 4; do
            (cd "$mount_point" && for j in {1..300}; do echo "$j" >"$i-$j" && rm "$i-$j" || exit 0; done) \
                2>/dev/null &
        done
        if [[ $end == umount ]]; then
            wait
            unmount_it
        else
            sleep 0.1
            kill -s TERM "$process"
            wait
        fi
        wait_until has_ended "$process"
        is_mounted && fail "io_uring: the mount was left behind ($end)"
    done
else
    echo "not run: io_uring: /sys/module/fuse/parameters/enable_uring is not Y"
fi

# ---- A server that dies --------------------------------------------------------------------------
mount_it
process=$(server)
exec 9<"$mount_point"
kill -s KILL "$process"
wait_until has_ended "$process"
is_dead() { ! stat -f "$mount_point" >/dev/null 2>&1 && is_mounted; }
is_dead || fail "a dead mount answers"
# It stays where another mount fails: programs would write to the directory below.
expect_failure "cannot write the log" "$mount_program" none "$mount_point" -o log="$work/missing/log"
is_dead || fail "a mount that failed took the dead one away"
# It is replaced, also where it is in use.
mount_it
exec 9<&-
echo content >"$mount_point/file"
[[ $(grep -cF " $mount_point fuse" /proc/self/mounts) == 1 ]] || fail "the dead mount is still there"
# One that lives stays.
expect_failure "is in use" "$mount_program" none "$mount_point"
[[ $(<"$mount_point/file") == content ]] || fail "a mount in use was replaced"
unmount_it
# So does a dead one of which nobody can tell whose it is.
mount_it -o subtype=
process=$(server)
kill -s KILL "$process"
wait_until has_ended "$process"
expect_failure "unmount it first" "$mount_program" none "$mount_point"
take_away

# ---- The foreground ------------------------------------------------------------------------------
"$mount_program" -f none "$mount_point" 2>"$work/foreground" &
process=$!
wait_until is_mounted
wait_until mountpoint -q "$mount_point"
kill -s TERM "$process"
wait "$process" || fail "the server in the foreground ended with $?: $(<"$work/foreground")"
is_mounted && fail "the server in the foreground left the mount behind"

# ---- As mount(8) calls it ------------------------------------------------------------------------
ln -s "$mount_program" "$work/mount.fuse.tiffin"
"$work/mount.fuse.tiffin" none "$mount_point" -sfnv -o rw,unheard-of || fail "mount -f"
is_mounted && fail "mount -f mounted"
expect_failure "unheard-of" "$work/mount.fuse.tiffin" none "$mount_point" -n -o rw,unheard-of

# ---- Read-only, and remounting -------------------------------------------------------------------
mount_it -o ro
touch "$mount_point/file" 2>/dev/null && fail "a read-only mount was written to"
unmount_it
if [[ $(id -u) -eq 0 ]]; then
    mount_it -o nodev
    touch "$mount_point/file"
    "$mount_program" none "$mount_point" -o nodev,remount,ro
    touch "$mount_point/other" 2>/dev/null && fail "writing after remount,ro"
    grep -F " $mount_point " /proc/self/mounts | grep -q " ro,.*nodev" || fail "remount lost options"
    "$mount_program" none "$mount_point" -o nodev,remount,rw
    touch "$mount_point/other" || fail "not writable after remount,rw"
    unmount_it
    expect_failure "no Tiffin file system" "$mount_program" none "$mount_point" -o remount,ro
fi
echo "passed"
