# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Finds libfuse as the target tiffin_libfuse. The one that scripts/deps built is preferred over the
# system's, which may lack features (docs/ has the table).

set(TIFFIN_FUSE3_PREFIX "/opt/tiffin/fuse3" CACHE PATH "Where scripts/deps installed libfuse")

set(own_archive "${TIFFIN_FUSE3_PREFIX}/lib/libfuse3.a")
set(ENV{PKG_CONFIG_PATH} "${TIFFIN_FUSE3_PREFIX}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
# Asked anew each time: scripts/deps may have built a newer one since.
unset(fuse3_FOUND CACHE)
unset(__pkg_config_checked_fuse3 CACHE)
pkg_check_modules(fuse3 REQUIRED QUIET IMPORTED_TARGET fuse3)

add_library(tiffin_libfuse INTERFACE)
if(EXISTS "${own_archive}")
    # As an archive, so that an installed mount.tiffin needs nothing from the prefix to start.
    set(own_libraries "${fuse3_STATIC_LIBRARIES}")
    list(REMOVE_ITEM own_libraries fuse3)
    target_include_directories(tiffin_libfuse SYSTEM INTERFACE ${fuse3_INCLUDE_DIRS})
    target_compile_options(tiffin_libfuse INTERFACE ${fuse3_CFLAGS_OTHER})
    target_link_libraries(tiffin_libfuse INTERFACE "${own_archive}" ${own_libraries})
else()
    target_link_libraries(tiffin_libfuse INTERFACE PkgConfig::fuse3)
endif()
message(STATUS "libfuse ${fuse3_VERSION} in ${fuse3_PREFIX}")
