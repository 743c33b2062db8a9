// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Stands in for fs/base/siphash.cc in this program: nobody can find enough names that collide under a random
// key, so here names say themselves where they belong. The linker takes this definition and leaves the other
// one in its archive.
#include <string_view>

#include "fs/base/siphash.h"

namespace tiffin {

// Names with "same" in them have one hash; all others FNV-1a, as good as any.
uint64_t siphash24(const uint8_t /*key*/[16], const void* data, size_t size_bytes) {
    const std::string_view name(static_cast<const char*>(data), size_bytes);
    if (name.find("same") != std::string_view::npos) {
        return 0x1234567;
    }
    uint64_t hash = 0xcbf29ce484222325U;
    for (const char byte : name) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3U;
    }
    return hash;
}

}  // namespace tiffin
