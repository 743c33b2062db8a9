// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/size_text.h"

#include "rdma_blk/wire/byte_size.h"

namespace tiffin::fuse {

OrProblem<uint64_t> parse_size(std::string_view text) {
    const std::string quoted = "\"" + std::string(text) + "\"";
    const Result<uint64_t> size = rdma_blk::parse_byte_size(text);
    if (size.ok()) {
        return size.value();
    }
    if (size.error() == Error::erange) {
        return Problem{"the size " + quoted + " is too large", Error::erange};
    }
    return Problem{quoted +
                   " is not a size: write a number of bytes, or a number with K, M, G or T (or KB, "
                   "MB, GB, TB for powers of 1000), such as 512M or 1.5G"};
}

std::string format_size(uint64_t size_bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t whole = size_bytes;
    uint64_t remainder = 0;  // of 1024
    while (whole >= 1024) {
        remainder = whole % 1024;
        whole /= 1024;
        ++unit;
    }
    std::string text = std::to_string(whole);
    const uint64_t tenths = remainder * 10 / 1024;
    if (tenths != 0) {
        text += "." + std::to_string(tenths);
    }
    return text + " " + kUnits[unit];
}

}  // namespace tiffin::fuse
