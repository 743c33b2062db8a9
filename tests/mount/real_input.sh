#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What people do with a file system: copying trees, tar, git, compiling, a database that is cut off.
#
# usage: real_input.sh DEVICE_ADDRESS [--small | --tiny]
#
# DEVICE_ADDRESS is mem:SIZE, file:PATH or tiffin://HOST/VOLUME, about 2 GiB; what it holds is lost. In memory nothing
# survives the daemon, so the parts that kill it or mount again are left out, and said to be.
# shellcheck disable=SC2119  # the options of mount_device are not this script's
set -euo pipefail
[[ $# -ge 1 ]] || { echo "usage: $(basename "$0") DEVICE_ADDRESS [--small]" >&2; exit 2; }
address=$1
small=false
tiny=false  # for machines that are a tenth as fast
[[ ${2:-} != --small && ${2:-} != --tiny ]] || small=true
[[ ${2:-} != --tiny ]] || tiny=true
# shellcheck source=tests/mount/lib/device.sh
source "$(dirname "$0")/lib/device.sh"
need_programs rsync tar git gcc make sqlite3 sha256sum stdbuf

# same_tree SOURCE COPY: every file, attribute, link and time.
same_tree() {
    local differences
    differences=$(rsync -nac --hard-links --delete --out-format='%i %n' "$1/" "$2/") ||
        fail "rsync cannot compare $1 and $2"
    # Directories whose time rsync would set are no difference of content, but they are one of cp -a.
    [[ -z $differences ]] || fail "rsync sees differences of $2: $(head -n 5 <<<"$differences")"
    diff -r --no-dereference "$1" "$2" >"$work/diff" 2>&1 ||
        fail "diff -r sees differences of $2: $(head -n 5 "$work/diff")"
}

copy_trees() {
    local source copy
    local sources=(/usr/include)
    if $small; then
        sources=(/usr/include/linux /usr/include/c++)
    fi
    for source in /usr/share/zoneinfo /usr/share/perl /usr/share/man /usr/share/info \
        /usr/share/git-core /usr/share/mime /usr/share/bash-completion; do
        [[ ! -d $source ]] || sources+=("$source")
        ! $small || [[ ${#sources[@]} -lt 4 ]] || break
    done
    if $tiny; then
        sources=(/usr/include/linux/netfilter)
    fi
    mkdir "$mount_point/copies"
    for source in "${sources[@]}"; do
        copy=$mount_point/copies/$(tr / _ <<<"${source#/}")
        say "cp -a $source"
        cp -a "$source" "$copy"
        same_tree "$source" "$copy"
    done
}

pack_and_unpack() {
    say "tar"
    tar -C "$mount_point/copies" -cf "$mount_point/copies.tar" .
    tar -C "$mount_point/copies" --compare -f "$mount_point/copies.tar" >"$work/tar" 2>&1 ||
        fail "tar --compare: $(head -n 5 "$work/tar")"
    mkdir "$mount_point/unpacked"
    tar -C "$mount_point/unpacked" -xpf "$mount_point/copies.tar"
    diff -r --no-dereference "$mount_point/copies" "$mount_point/unpacked" >"$work/diff" ||
        fail "unpacking gave something else: $(head -n 5 "$work/diff")"
    rm -rf "$mount_point/unpacked" "$mount_point/copies.tar"
}

clone_a_repository() {
    say "git"
    export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@localhost
    export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@localhost
    local origin=$work/origin clone=$mount_point/clone number tree=/usr/include/linux changes=20 headers
    if $tiny; then
        tree=/usr/include/linux/netfilter changes=12
    fi
    git -c init.defaultBranch=main init -q "$origin"
    cp -r "$tree" "$origin/linux"
    git -C "$origin" add -A
    git -C "$origin" commit -q -m "a tree"
    for number in $(seq "$changes"); do
        find "$origin/linux" -name "*$((number % 10))*.h" -exec sed -i "1i // $number" {} +
        git -C "$origin" commit -q -a --allow-empty -m "change $number" || fail "the repository to clone"
    done
    git clone -q --no-hardlinks "$origin" "$clone"
    git -C "$clone" fsck --full --strict >"$work/git" 2>&1 || fail "git fsck: $(<"$work/git")"
    [[ $(git -C "$clone" rev-parse HEAD) == $(git -C "$origin" rev-parse HEAD) ]] ||
        fail "the clone has another head"
    [[ -z $(git -C "$clone" status --porcelain) ]] || fail "the fresh clone has changes"
    git -C "$clone" checkout -q -b work HEAD~10
    headers=("$clone"/linux/*.h)
    git -C "$clone" mv "${headers[0]}" linux/moved.h
    git -C "$clone" commit -q -m "on the mount"
    git -C "$clone" rebase -q main >"$work/git" 2>&1 || fail "git rebase: $(<"$work/git")"
    git -C "$clone" gc -q --prune=now
    git -C "$clone" fsck --full --strict >"$work/git" 2>&1 || fail "git fsck after gc: $(<"$work/git")"
}

build_a_program() {
    say "make"
    local tree=$mount_point/program number files=100
    ! $tiny || files=8
    mkdir "$tree"
    for number in $(seq $files); do
        cat >"$tree/part$number.c" <<END
#include "parts.h"
#include <stdio.h>
int part$number(int value) { char text[32]; snprintf(text, sizeof text, "%d", value); return value + $number; }
END
        echo "int part$number(int value);" >>"$tree/parts.h"
    done
    {
        echo '#include "parts.h"'
        echo '#include <stdio.h>'
        echo 'int main(void) { int sum = 0;'
        for number in $(seq $files); do echo "sum = part$number(sum);"; done
        printf '%s\n' 'printf("%d\n", sum); return 0; }'
    } >"$tree/main.c"
    cat >"$tree/Makefile" <<'END'
objects := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
	$(CC) -o $@ $^
%.o: %.c parts.h
	$(CC) -O1 -c -o $@ $<
END
    make -C "$tree" -j2 program >"$work/make" 2>&1 || fail "make: $(tail -n 5 "$work/make")"
    [[ $("$tree/program") -eq $((files * (files + 1) / 2)) ]] || fail "the program computes nonsense"
    # Times are right when make has nothing to do, and one thing after a change.
    make -C "$tree" --question program || fail "make thinks that something is out of date"
    touch "$tree/part7.c"
    make -C "$tree" program >"$work/make" 2>&1 || fail "make: $(tail -n 5 "$work/make")"
    [[ $(grep -c -- ' -c -o ' "$work/make") -eq 1 ]] || fail "make did not compile exactly one file"
}

# ---- The database -----------------------------------------------------------------------------------

# database_statements MODE SYNCHRONOUS FIRST LAST: after each transaction its number is printed, which
# is when it is promised.
database_statements() {
    echo "PRAGMA journal_mode=$1; PRAGMA synchronous=$2;"
    echo "CREATE TABLE IF NOT EXISTS rows(id INTEGER PRIMARY KEY, payload TEXT);"
    awk -v first="$3" -v last="$4" 'BEGIN {
        for (id = first; id <= last; id++) {
            printf "BEGIN; INSERT INTO rows VALUES(%d, printf('"'%%0*d'"', 10 + %d %% 3000, %d)); COMMIT;\n", id, id, id
            printf "SELECT '"'committed %d'"';\n", id
        }
    }'
}

# check_database MODE LAST: whole, and every promised row is there with its content.
check_database() {
    local database=$mount_point/database-$1 answer
    answer=$(sqlite3 "$database" 'PRAGMA integrity_check;') || fail "sqlite3 cannot read database-$1"
    [[ $answer == ok ]] || fail "integrity_check of database-$1: $answer"
    answer=$(sqlite3 "$database" "SELECT count(*) FROM rows WHERE id <= $2;")
    [[ $answer -eq $2 ]] || fail "database-$1: $2 rows were committed, $answer are there"
    answer=$(sqlite3 "$database" \
        "SELECT count(*) FROM rows WHERE payload != printf('%0*d', 10 + id % 3000, id);")
    [[ $answer -eq 0 ]] || fail "database-$1: $answer rows have another content"
}

committed() { sed -n 's/^committed //p' "$work/acknowledged-$1" | tail -n 1; }

run_database() {
    say "sqlite, journal_mode=$1, to its end"
    local rows=300
    ! $tiny || rows=40
    database_statements "$1" FULL 1 $rows | sqlite3 -bail "$mount_point/database-$1" \
        >"$work/acknowledged-$1" || fail "sqlite3 with journal_mode=$1"
    [[ $(committed "$1") -eq $rows ]] || fail "sqlite3 committed $(committed "$1") rows of $rows"
    check_database "$1" $rows
}

# cut_database MODE SYNCHRONOUS
cut_database() {
    say "sqlite, journal_mode=$1, synchronous=$2, with the daemon killed in the middle"
    local first last more=100
    ! $tiny || more=20
    first=$(($(committed "$1") + 1))
    set -m
    (database_statements "$1" "$2" "$first" 1000000 |
        stdbuf -oL sqlite3 -bail "$mount_point/database-$1" >>"$work/acknowledged-$1" 2>"$work/sqlite") &
    load_group=("$!")
    set +m
    enough_is_committed() { [[ $(committed "$1") -ge $((first + more)) ]]; }
    wait_until enough_is_committed "$1"
    sleep "0.$((RANDOM % 10))"
    kill_server
    # It ends by itself, as every call of it fails now.
    wait "${load_group[0]}" 2>/dev/null || true
    load_group=()
    take_dead_mount
    last=$(committed "$1")
    check_device "after the daemon was killed"
    mount_device
    if [[ $1 == DELETE ]]; then
        # The last transaction is committed by unlinking the journal. SQLite syncs the directory after
        # that only with synchronous=EXTRA, and then takes a directory that it cannot open, as when
        # the daemon has just died, for success.
        last=$((last - 1))
    fi
    check_database "$1" "$last"
    echo "$last rows were promised and are there"
    # Where the next ones begin.
    echo "committed $(sqlite3 "$mount_point/database-$1" 'SELECT max(id) FROM rows;')" \
        >>"$work/acknowledged-$1"
}

# ---- All of it ---------------------------------------------------------------------------------------

use_device "$address" 2G
mount_device
copy_trees
pack_and_unpack
clone_a_repository
build_a_program
for mode in DELETE WAL; do
    run_database $mode
done
if in_memory; then
    echo "not run: killing the daemon, fsck.tiffin and mounting again: $address is gone with the daemon"
    unmount_device
else
    cut_database DELETE FULL
    cut_database DELETE EXTRA
    cut_database WAL FULL
    cut_database WAL FULL
    say "checksums over a remount"
    (cd "$mount_point" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/sums"
    (cd "$mount_point" && find . -printf '%p %y %m %n %U:%G %s %T@ %l\n' | sort) >"$work/names"
    unmount_device
    check_device "after unmounting"
    mount_device
    (cd "$mount_point" && sha256sum --check --quiet --strict "$work/sums") >"$work/diff" 2>&1 ||
        fail "checksums after mounting again: $(head -n 5 "$work/diff")"
    (cd "$mount_point" && find . -printf '%p %y %m %n %U:%G %s %T@ %l\n' | sort) |
        diff "$work/names" - >"$work/diff" || fail "names or attributes: $(head -n 5 "$work/diff")"
    unmount_device
    check_device "at the end"
fi
echo "passed"
