# SPDX-License-Identifier: MIT OR GPL-2.0-only
# GoogleTest programs, one CTest test for each test case; with the sanitizers, whose programs start
# slowly, and in continuous integration, where 3,000 starts take minutes, one for each of a few shares of a program's cases.
include(GoogleTest)

set(shares_by_default OFF)
if(TIFFIN_SANITIZE OR "$ENV{TIFFIN_TEST_SHARES}")
    set(shares_by_default ON)
endif()
option(TIFFIN_TEST_SHARES "Run many test cases in one process" ${shares_by_default})

set(TIFFIN_TEST_TIMEOUT_SECONDS 120)
if(TIFFIN_SANITIZE)
    set(TIFFIN_TEST_TIMEOUT_SECONDS 240)
endif()

# The targets tests_LABEL: the programs that tests of these labels run, and nothing else. Those of other labels need more.
foreach(label IN ITEMS unit suite model crash cost fuzz sanitized)
    add_custom_target(tests_${label})
endforeach()

set(TIFFIN_TEST_LIBRARIES tiffin_test_support tiffin_check tiffin_tools_common tiffin_fuse tiffin_server
    tiffin_simulation tiffin_host GTest::gmock GTest::gtest GTest::gtest_main)

# tiffin_test(NAME LABEL label SOURCES source... [LINK library...])
function(tiffin_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL" "SOURCES;LINK")
    add_executable(${name} ${arg_SOURCES})
    target_link_libraries(${name} PRIVATE tiffin_options)
    tiffin_link(${name} PRIVATE ${arg_LINK} ${TIFFIN_TEST_LIBRARIES})
    add_dependencies(tests_${arg_LABEL} ${name})
    # The C library keeps memory that is freed: getting it anew from the kernel for each mount takes longer than the rest.
    set(environment "")
    if(NOT TIFFIN_SANITIZE AND NOT arg_LABEL STREQUAL "cost")  # which measure that
        set(environment "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456")
    endif()
    if(TIFFIN_TEST_SHARES)
        set(shares 4)
        math(EXPR last "${shares} - 1")
        math(EXPR timeout "${TIFFIN_TEST_TIMEOUT_SECONDS} * 5")
        foreach(share RANGE ${last})
            add_test(NAME ${name}.${share} COMMAND ${name} --gtest_brief=1
                     WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
            set_tests_properties(${name}.${share} PROPERTIES
                LABELS ${arg_LABEL} TIMEOUT ${timeout}
                ENVIRONMENT "GTEST_TOTAL_SHARDS=${shares};GTEST_SHARD_INDEX=${share};${environment}")
        endforeach()
        return()
    endif()
    # Found when CTest runs, not when it is linked: a test that crashes must not stop the build.
    gtest_discover_tests(${name}
        TEST_PREFIX "${name}."
        NO_PRETTY_VALUES
        DISCOVERY_MODE PRE_TEST
        DISCOVERY_TIMEOUT 60
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${TIFFIN_TEST_TIMEOUT_SECONDS} ENVIRONMENT "${environment}")
endfunction()

# tiffin_test_objects(NAME source...): objects, not an archive, since a linker drops the members of
# an archive that nobody calls, and with them the tests they register.
function(tiffin_test_objects name)
    if(NOT ARGN)
        return()
    endif()
    add_library(${name} OBJECT ${ARGN})
    target_link_libraries(${name} PUBLIC tiffin_options)
    tiffin_link(${name} PUBLIC tiffin_test_support tiffin_check tiffin_host GTest::gmock)
endfunction()
