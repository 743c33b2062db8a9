# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Compiles the core once more as the kernel would, links it into one object and checks that it needs
# nothing but what fs/vfs/host.h declares.

function(tiffin_freestanding)
    # GCC only, as for the kernel module. Sanitizer builds have their own work to do.
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR TIFFIN_SANITIZE
       OR NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
        return()
    endif()

    add_library(tiffin_freestanding_objects OBJECT EXCLUDE_FROM_ALL ${ARGN})
    target_link_libraries(tiffin_freestanding_objects PRIVATE tiffin_warnings)
    target_include_directories(tiffin_freestanding_objects PRIVATE "${PROJECT_SOURCE_DIR}")
    target_compile_options(tiffin_freestanding_objects PRIVATE
        -O2 -ffreestanding -fno-exceptions -fno-rtti -fno-threadsafe-statics -fcheck-new
        -mno-red-zone -mgeneral-regs-only -mcmodel=kernel -fno-pic -fno-pie
        -fno-asynchronous-unwind-tables -fno-stack-protector -U_FORTIFY_SOURCE
        # Kernel stacks are small: the whole depth of the core has to stay under 8 KiB.
        -Wframe-larger-than=1024 -Werror)

    set(linked "${CMAKE_CURRENT_BINARY_DIR}/tiffin_freestanding.o")
    set(checked "${CMAKE_CURRENT_BINARY_DIR}/tiffin_freestanding.checked")
    set(check "${PROJECT_SOURCE_DIR}/scripts/check-freestanding")
    set(host_header "${PROJECT_SOURCE_DIR}/fs/vfs/host.h")
    set(objects "$<TARGET_OBJECTS:tiffin_freestanding_objects>")

    add_custom_command(
        OUTPUT "${linked}"
        COMMAND "${CMAKE_LINKER}" -r -o "${linked}" "${objects}"
        DEPENDS tiffin_freestanding_objects "${objects}"
        COMMAND_EXPAND_LISTS VERBATIM
        COMMENT "Linking the freestanding core")
    add_custom_command(
        OUTPUT "${checked}"
        COMMAND "${check}" --host-header "${host_header}" --linked "${linked}" "${objects}"
        COMMAND "${CMAKE_COMMAND}" -E touch "${checked}"
        DEPENDS "${linked}" "${check}" "${host_header}"
        COMMAND_EXPAND_LISTS VERBATIM
        COMMENT "Checking that the core needs only fs/vfs/host.h")
    # Not a part of the default build, which it would make minutes longer.
    add_custom_target(freestanding DEPENDS "${checked}")

    if(BUILD_TESTING)
        add_test(NAME freestanding
                 COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --target freestanding)
        # Two builds at a time would not do in one folder: mount.up makes one, too.
        set_tests_properties(freestanding PROPERTIES LABELS check TIMEOUT 1200 RESOURCE_LOCK build_folder)
    endif()
endfunction()
