# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What a file system outside of this repository is built with: headers, one archive, and tiffin.pc for pkg-config.
# `cmake --install BUILD --component development`; a plain `cmake --install` leaves it out.

set(component COMPONENT development EXCLUDE_FROM_ALL)
set(headers "${CMAKE_INSTALL_INCLUDEDIR}/tiffin")
install(DIRECTORY fs/base fs/vfs DESTINATION "${headers}/fs" ${component} FILES_MATCHING PATTERN "*.h")
install(FILES fuse/session/file_system_type.h DESTINATION "${headers}/fuse/session" ${component})
install(FILES fuse/tools/common/mount_program.h DESTINATION "${headers}/fuse/tools/common" ${component})
install(FILES docs/examples/file_system/squares.cc docs/examples/file_system/Makefile
        DESTINATION "${CMAKE_INSTALL_DOCDIR}-dev/examples" ${component})

# All that mount_program() needs of Tiffin, in one archive: whoever links it need not know in which order. So is a libfuse
# that scripts/deps built, which is in no package.
set(archives "")
foreach(library IN ITEMS tiffin_tools_common tiffin_check tiffin_fuse tiffin_metrics tiffin_remote tiffin_host_services tiffin_fs)
    list(APPEND archives "$<TARGET_FILE:${library}>")
endforeach()
set(required blkid fmt libisal libsodium mount prometheus-cpp-core uuid)
set(other_libraries -lcivetweb)
get_target_property(libfuse_libraries tiffin_libfuse INTERFACE_LINK_LIBRARIES)
foreach(library IN LISTS libfuse_libraries)
    if(library STREQUAL "PkgConfig::fuse3")
        list(APPEND required fuse3)
    elseif(library MATCHES "[.]a$")
        list(APPEND archives "${library}")
    else()
        list(APPEND other_libraries "-l${library}")
    endif()
endforeach()
get_target_property(remote_libraries tiffin_remote INTERFACE_LINK_LIBRARIES)
if("PkgConfig::ibverbs" IN_LIST remote_libraries)
    list(APPEND required libibverbs)
endif()
list(JOIN required ", " required)
list(JOIN other_libraries " " other_libraries)
file(RELATIVE_PATH include_from_lib "/${CMAKE_INSTALL_LIBDIR}" "/${headers}")
configure_file(packaging/tiffin.pc.in "${PROJECT_BINARY_DIR}/tiffin.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/tiffin.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" ${component})
install(CODE "set(archives \"${archives}\")
    set(folder \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}\")
    set(build \"${PROJECT_BINARY_DIR}\")
    set(ar \"${CMAKE_AR}\")
    set(strip \"${CMAKE_STRIP}\")" ${component})
install(CODE [[
    message(STATUS "Installing: ${folder}/libtiffin.a")
    # In the build folder, since a script of ar cannot quote the names of folders; under a name of its own, since several
    # may install at once.
    string(RANDOM LENGTH 12 name)
    list(TRANSFORM archives REPLACE "^${build}/" "")
    list(TRANSFORM archives PREPEND "ADDLIB ")
    list(JOIN archives "\n" script)
    file(WRITE "${build}/${name}.mri" "CREATE ${name}.a\n${script}\nSAVE\nEND\n")
    execute_process(COMMAND "${ar}" -M INPUT_FILE ${name}.mri WORKING_DIRECTORY "${build}" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${strip}" --strip-debug ${name}.a WORKING_DIRECTORY "${build}" COMMAND_ERROR_IS_FATAL ANY)
    file(INSTALL "${build}/${name}.a" DESTINATION "${folder}" RENAME libtiffin.a)
    file(REMOVE "${build}/${name}.a" "${build}/${name}.mri")
]] ${component})
