# SPDX-License-Identifier: MIT OR GPL-2.0-only
# How everything is compiled: language level, warnings, sanitizers.

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS ON)

# Assertions stay on in release builds: a file system that has lost its invariants must stop, not
# write. CMake's own defaults would define NDEBUG.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g")
# Of the checks: line numbers are enough there.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

# Tests and the programs' command lines take longer to compile than to run.
set(TIFFIN_TEST_OPTIONS "")
set(TIFFIN_TOOL_OPTIONS "")

set(TIFFIN_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=: address,undefined or thread")
option(TIFFIN_FUZZ "Instrument rdma_blk for libFuzzer, and have the programs that search with it (Clang)" OFF)
option(TIFFIN_WARNINGS_AS_ERRORS "Stop at the first compiler warning" ON)

if(TIFFIN_SANITIZE MATCHES "address")
    set(TIFFIN_TEST_OPTIONS -O0)
    set(TIFFIN_TOOL_OPTIONS -O0)
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(TIFFIN_TEST_OPTIONS -O1 -g1)
    set(TIFFIN_TOOL_OPTIONS -O1 -g1)
endif()

# Several files of a target in one compilation: most of the time goes into headers and templates that they share. Where all
# is compiled and nobody edits. Elsewhere a file that forgets an include is to be noticed: by scripts/test without --ci, and
# with --full by scripts/lint --each. What .ci/run has in its environment holds for all presets that it configures.
# Files whose own names collide with another one's have SKIP_UNITY_BUILD_INCLUSION.
set(unity_by_default OFF)
if(TIFFIN_SANITIZE OR "$ENV{TIFFIN_UNITY}")
    set(unity_by_default ON)
endif()
option(TIFFIN_UNITY "Compile several files at once" ${unity_by_default})
set(CMAKE_UNITY_BUILD ${TIFFIN_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Clones share what was compiled: paths are taken as relative. (The debug information may then name another clone's folder.)
    # What a file holds is computed once, and not for each that includes it. It goes by the compiler's own list of headers:
    # otherwise what it does not know is preprocessed once more. But files that include several name them with the clone's
    # path, and only what they are after that is the same.
    find_program(ENV_PROGRAM env REQUIRED)  # starts ten times as fast as that of CMake
    set(by_list CCACHE_DEPEND=1)
    if(TIFFIN_UNITY)
        set(by_list "")
    endif()
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${ENV_PROGRAM}" CCACHE_SLOPPINESS=time_macros ${by_list} CCACHE_NOHASHDIR=1 CCACHE_INODECACHE=1
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${CCACHE_PROGRAM}")
endif()

# Warnings are separate from the rest, since the freestanding build wants them and nothing else.
add_library(tiffin_warnings INTERFACE)
target_compile_options(tiffin_warnings INTERFACE -Wall -Wextra -Wshadow)
if(TIFFIN_WARNINGS_AS_ERRORS)
    target_compile_options(tiffin_warnings INTERFACE -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(tiffin_warnings INTERFACE -Wthread-safety -Wthread-safety-beta)
endif()

add_library(tiffin_options INTERFACE)
target_link_libraries(tiffin_options INTERFACE tiffin_warnings)
target_include_directories(tiffin_options INTERFACE "${PROJECT_SOURCE_DIR}")
# Messages of assertions name files from here on, wherever the clone is; so its compiler's cache serves others, too.
target_compile_options(tiffin_options INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
target_link_options(tiffin_options INTERFACE -Wl,--as-needed)
find_program(LLD_PROGRAM ld.lld)
if(LLD_PROGRAM)
    target_link_options(tiffin_options INTERFACE -fuse-ld=lld)  # in half the time
endif()
if(TIFFIN_SANITIZE)
    target_compile_options(tiffin_options INTERFACE
        -fsanitize=${TIFFIN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(tiffin_options INTERFACE -fsanitize=${TIFFIN_SANITIZE})
    # Code without locks lets tests come in between its steps: fs/base/race_point.h.
    target_compile_definitions(tiffin_options INTERFACE TIFFIN_RACE_POINTS=1)
endif()
