// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/byte_size.h"

#include <charconv>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kMaxScale = 1'000'000;  // times the largest unit it fits into 64 bits

// How many bytes a suffix stands for; 0: it is none.
uint64_t unit_of(std::string_view suffix) {
    if (suffix.empty()) {
        return 1;
    }
    const size_t place = std::string_view("KMGTkmgt").find(suffix[0]);
    const std::string_view rest = suffix.substr(1);
    if (place == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB")) {
        return 0;
    }
    uint64_t unit = 1;
    for (size_t power = 0; power <= place % 4; ++power) {
        unit *= rest == "B" ? 1000 : 1024;
    }
    return unit;
}

}  // namespace

Result<uint64_t> parse_byte_size(std::string_view text) {
    uint64_t whole = 0;
    const char* end = text.data() + text.size();
    const auto [point, error] = std::from_chars(text.data(), end, whole);
    const char* rest = point;
    uint64_t fraction = 0;
    uint64_t scale = 1;
    if (rest != end && *rest == '.') {
        for (++rest; rest != end && *rest >= '0' && *rest <= '9' && scale < kMaxScale; ++rest) {
            fraction = fraction * 10 + static_cast<uint64_t>(*rest - '0');
            scale *= 10;
        }
    }
    const uint64_t unit = unit_of(std::string_view(rest, static_cast<size_t>(end - rest)));
    const bool is_whole = rest == point;
    if (error == std::errc::invalid_argument || unit == 0 ||
        (!is_whole && (scale == 1 || unit == 1))) {
        return Error::einval;
    }
    const uint64_t part = fraction * unit / scale;
    if (error == std::errc::result_out_of_range || whole > (UINT64_MAX - part) / unit) {
        return Error::erange;
    }
    return whole * unit + part;
}

}  // namespace tiffin::rdma_blk
