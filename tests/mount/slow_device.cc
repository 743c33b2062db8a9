// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Preloaded into a daemon: each write to its device takes at least 100 ms.
#include <dlfcn.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

constexpr useconds_t kDelayUs = 100'000;

}  // namespace

extern "C" ssize_t pwritev(int file, const iovec* parts, int part_count, off_t offset) {
    using Call = ssize_t (*)(int, const iovec*, int, off_t);
    static const auto next = reinterpret_cast<Call>(dlsym(RTLD_NEXT, "pwritev"));
    usleep(kDelayUs);
    return next(file, parts, part_count, offset);
}

extern "C" ssize_t pwritev64(int file, const iovec* parts, int part_count, off_t offset) {
    return pwritev(file, parts, part_count, offset);
}
