# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Waiting for what programs do; tests/mount/lib has it for all scripts. No process is started to look again: that takes
# longer than what is waited for, and processor time from it.
# shellcheck shell=bash

exec {silent_pipe}<> <(:)
# pause SECONDS
pause() { read -rt "$1" -u "$silent_pipe" || true; }

# Whether a process has ended, with all its threads: the first one may be gone while another one still has files and locks. A
# zombie that nobody has asked about yet counts. What cannot be read of a process that exists says nothing.
has_ended() {
    local file line is_seen=
    for file in "/proc/$1"/task/*/stat; do
        # One line, in one read: between two, a new name of the process would move what is read.
        read -r line 2>/dev/null <"$file" || continue  # it may end right now
        [[ ${line##*) } == [ZX]* ]] || return 1
        is_seen=yes
    done
    [[ -n $is_seen || ! -e /proc/$1 ]]
}

# Bounded by the test's own limit, generous enough for a busy machine. It looks every `poll_s` seconds.
wait_until() {
    local i
    for ((i = 0; i < 1200; i++)); do
        "$@" && return 0
        pause "${poll_s:-0.05}"
    done
    fail "waited in vain: $*"
}

# Whether a FUSE file system is mounted on $mount_point.
is_mounted() {
    : "${mount_point:?}"
    local mounts
    mapfile -t mounts </proc/self/mounts
    [[ "${mounts[*]}" == *" $mount_point fuse"* ]]
}
