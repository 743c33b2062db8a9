# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Checks of the source tree itself, as tests, so that one CTest summary covers everything.

# tiffin_check_test(NAME TIMEOUT_SECONDS command...)
function(tiffin_check_test name timeout_seconds)
    add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES LABELS check TIMEOUT ${timeout_seconds})
endfunction()

tiffin_check_test(arrows 300 scripts/check-arrows)
tiffin_check_test(docs 300 scripts/check-docs)
tiffin_check_test(license 300 scripts/check-license)
tiffin_check_test(format 300 scripts/format --check)
tiffin_check_test(shell 300 scripts/check-shell)
tiffin_check_test(manuals 300 scripts/check-manuals "${PROJECT_BINARY_DIR}/bin")
tiffin_check_test(completion 300 scripts/check-completion "${PROJECT_BINARY_DIR}/bin")

# The long ones belong to the release build only, and run only as `ctest -C ci`, those that repeat less, and as
# `ctest -C full`, all.
if(CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT TIFFIN_SANITIZE)
    # tiffin_long_check(NAME TIERS TIMEOUT_SECONDS command...)
    function(tiffin_long_check name tiers timeout_seconds)
        add_test(NAME ${name} COMMAND ${ARGN} CONFIGURATIONS ${tiers}
                 WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
        set_tests_properties(${name} PROPERTIES LABELS full TIMEOUT ${timeout_seconds})
    endfunction()

    # Most tests of this build wait more than they compute. What only computes, one after the other and at the lowest
    # priority, has a place beside them from the beginning, which scripts/test adds to those of the processors.
    tiffin_long_check(preset_asan_build "ci;full" 5000 nice -n 19 scripts/check-preset --short --build asan)
    tiffin_long_check(preset_tsan_build "ci;full" 5000 nice -n 19 scripts/check-preset --short --build tsan)
    tiffin_long_check(lint ci 5000 nice -n 19 scripts/lint)
    tiffin_long_check(lint_each full 7200 nice -n 19 scripts/lint --each)
    set_tests_properties(preset_asan_build preset_tsan_build PROPERTIES COST 10000 RESOURCE_LOCK background)
    set_tests_properties(lint lint_each PROPERTIES COST 9999 RESOURCE_LOCK background)
    # These use all processors, and have tests among them that go by time: last and one by one.
    tiffin_long_check(preset_asan_short ci 2400 scripts/check-preset --short asan)
    tiffin_long_check(preset_tsan_short ci 2400 scripts/check-preset --short tsan)
    tiffin_long_check(preset_asan full 2400 scripts/check-preset asan)
    tiffin_long_check(preset_tsan full 2400 scripts/check-preset tsan)
    # In the build of preset_asan.
    tiffin_long_check(libfuzzer full 1200 scripts/fuzz --runs 50000)
    set_tests_properties(preset_asan preset_tsan preset_asan_short preset_tsan_short libfuzzer
                         PROPERTIES RUN_SERIAL ON)
    set_tests_properties(libfuzzer PROPERTIES COST -5)
    # Before them, and after the tests of this build, a virtual machine: CTest runs first what has a higher cost. It is
    # emulated and slow; uml.core is the same test in a kernel that runs at the processor's own speed.
    tiffin_long_check(vm.core_in_kernel full 900 tests/vm/run)
    # On two processors, what otherwise user-mode Linux does on one.
    foreach(name parallel races suite)
        tiffin_long_check(vm.${name} full 1500 tests/vm/guest --time 1400 tests/uml/${name}.sh)
        list(APPEND vm_tests vm.${name})
    endforeach()
    tiffin_long_check(vm.stack full 1500 tests/vm/guest --time 1400 --memory 400 tests/uml/stack.sh)
    tiffin_long_check(vm.power_cut full 1500 tests/vm/power_cut)
    set_tests_properties(${vm_tests} vm.stack vm.power_cut PROPERTIES COST -3 RESOURCE_LOCK virtual_machine
                         ENVIRONMENT "TIFFIN_BIN=${PROJECT_BINARY_DIR}/bin")
    tiffin_long_check(vm.rdma full 3200 tests/vm/rdma "${PROJECT_BINARY_DIR}")
    set_tests_properties(vm.rdma PROPERTIES COST -1 RESOURCE_LOCK virtual_machine)
    if(NOT TIFFIN_RDMA OR NOT ibverbs_FOUND)
        set_tests_properties(vm.rdma PROPERTIES DISABLED ON)  # and CTest says so
    endif()
    set_tests_properties(vm.core_in_kernel PROPERTIES COST -4 RESOURCE_LOCK virtual_machine)
    # Not run, and CTest says so, without root, /dev/fuse, or the clean system of 'scripts/deps package'.
    tiffin_long_check(package "ci;full" 600 tests/package/clean_system.sh "${PROJECT_BINARY_DIR}")
    set_tests_properties(package PROPERTIES LABELS package SKIP_RETURN_CODE 77)
    tiffin_long_check(package_modules full 900 tests/package/modules.sh "${PROJECT_BINARY_DIR}")
    tiffin_long_check(package_dkms full 1200 tests/package/dkms.sh "${PROJECT_BINARY_DIR}")
    set_tests_properties(package_modules package_dkms PROPERTIES LABELS package SKIP_RETURN_CODE 77)
    # Of the release build only: others' libraries have sanitizers.
    add_test(NAME development COMMAND tests/package/development.sh "${PROJECT_BINARY_DIR}"
             WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(development PROPERTIES LABELS package TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()
