# SPDX-License-Identifier: MIT OR GPL-2.0-only
# Targets are made from folders: a new source file needs no change here, and a folder without
# sources makes no target.

# tiffin_glob(VARIABLE FOLDER...): the .cc files directly in these folders, below the current one.
function(tiffin_glob variable)
    set(patterns "${ARGN}")
    list(TRANSFORM patterns REPLACE "(.+)" "${CMAKE_CURRENT_SOURCE_DIR}/\\1/*.cc")
    file(GLOB sources CONFIGURE_DEPENDS ${patterns})
    set(${variable} "${sources}" PARENT_SCOPE)
endfunction()

# tiffin_library(NAME SOURCES source... [LINK library...]): libraries that do not exist yet are
# left out, so that the folders can be written in any order.
function(tiffin_library name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
    if(NOT arg_SOURCES)
        return()
    endif()
    add_library(${name} STATIC ${arg_SOURCES})
    target_link_libraries(${name} PUBLIC tiffin_options)
    tiffin_link(${name} PUBLIC ${arg_LINK})
endfunction()

# tiffin_link(TARGET PUBLIC|PRIVATE library...): links those that exist. A name with a namespace
# (GTest::gtest) was found by find_package and is always linked.
function(tiffin_link target visibility)
    foreach(library IN LISTS ARGN)
        if(TARGET ${library} OR library MATCHES "::")
            target_link_libraries(${target} ${visibility} ${library})
        endif()
    endforeach()
endfunction()
