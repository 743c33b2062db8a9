# SPDX-License-Identifier: MIT OR GPL-2.0-only
# What `cmake --install` puts where.

get_property(tiffin_programs GLOBAL PROPERTY tiffin_programs)
foreach(program IN LISTS tiffin_programs)
    if(program STREQUAL "tiffin")
        install(TARGETS ${program} DESTINATION "${CMAKE_INSTALL_BINDIR}")
    else()
        install(TARGETS ${program} DESTINATION "${CMAKE_INSTALL_SBINDIR}")
    endif()
endforeach()

# `mount -t fuse.tiffin DEVICE MOUNTPOINT` and lines in /etc/fstab run mount.fuse.tiffin, which
# mount(8) looks for in /sbin and nowhere else; fsck(8) runs fsck.fuse.tiffin for such lines.
set(TIFFIN_MOUNT_HELPER_FOLDER "" CACHE PATH
    "Where mount.fuse.tiffin and fsck.fuse.tiffin go; empty: /sbin below the prefixes /usr and /usr/local, else sbin")
if("mount.tiffin" IN_LIST tiffin_programs)
    # When it is installed, since `cmake --install --prefix` may choose the prefix only then.
    install(CODE "set(folder \"${TIFFIN_MOUNT_HELPER_FOLDER}\")
        set(sbin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SBINDIR}\")")
    install(CODE [[
        if(NOT folder AND CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?$")
            set(folder /sbin)
        elseif(NOT folder)
            set(folder "${sbin}")
        endif()
        file(MAKE_DIRECTORY "$ENV{DESTDIR}${folder}")
        foreach(what IN ITEMS mount fsck)
            set(link "$ENV{DESTDIR}${folder}/${what}.fuse.tiffin")
            message(STATUS "Installing: ${link}")
            file(CREATE_LINK "${sbin}/${what}.tiffin" "${link}" SYMBOLIC)
        endforeach()
    ]])
endif()

foreach(section IN ITEMS 1 5 8)
    file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/man/*.${section}")
    install(FILES ${pages} DESTINATION "${CMAKE_INSTALL_MANDIR}/man${section}")
endforeach()
install(FILES LICENSE LICENSES/MIT.txt LICENSES/GPL-2.0-only.txt DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(packaging "${PROJECT_SOURCE_DIR}/packaging")
set(completions "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
install(FILES "${packaging}/tiffin.bash-completion" DESTINATION "${completions}" RENAME tiffin)
# bash looks for a file of the command's name.
foreach(program IN ITEMS tiffind mount.tiffin mkfs.tiffin fsck.tiffin)
    install(CODE "file(CREATE_LINK tiffin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${completions}/${program}\" SYMBOLIC)")
endforeach()
install(FILES "${packaging}/tiffin.magic" DESTINATION "${CMAKE_INSTALL_DATADIR}/tiffin")
# When it is installed, as above: the rule names the program by its whole path.
install(CODE "set(rule \"${packaging}/61-tiffin.rules.in\")
    set(bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")")
install(CODE [[
    set(installed "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/udev/rules.d/61-tiffin.rules")
    message(STATUS "Installing: ${installed}")
    configure_file("${rule}" "${installed}" @ONLY)
]])
install(FILES "${packaging}/examples/mnt-books.mount" "${packaging}/examples/mnt-books.automount"
              "${packaging}/tiffind.toml"
        DESTINATION "${CMAKE_INSTALL_DOCDIR}/examples")

if("tiffind" IN_LIST tiffin_programs)
    install(FILES "${packaging}/tiffind.sysusers" DESTINATION lib/sysusers.d RENAME tiffind.conf)
    # When it is installed, as above: the unit names the program by its whole path.
    install(CODE "set(unit \"${PROJECT_SOURCE_DIR}/rdma_blk/server/tiffind.service.in\")
        set(sbin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_SBINDIR}\")")
    install(CODE [[
        set(installed "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/systemd/system/tiffind.service")
        message(STATUS "Installing: ${installed}")
        configure_file("${unit}" "${installed}" @ONLY)
    ]])
endif()

# The sources of the kernel modules, for dkms. Nothing is built here, so that no kernel can make installing fail.
set(dkms_folder "src/tiffin-${PROJECT_VERSION}")
configure_file("${PROJECT_SOURCE_DIR}/kmod/dkms.conf.in" "${PROJECT_BINARY_DIR}/dkms.conf" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/dkms.conf" DESTINATION "${dkms_folder}")
install(DIRECTORY fs kmod DESTINATION "${dkms_folder}" USE_SOURCE_PERMISSIONS
        FILES_MATCHING REGEX "\\.(c|cc|h|mk)$" PATTERN Kbuild PATTERN kmod/build)
install(FILES scripts/lib/common.sh DESTINATION "${dkms_folder}/scripts/lib")
