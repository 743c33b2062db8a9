// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Leaves with empty values, such as orphan keys: they share their place with the value put before them.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "fs/tiffinfs/tree/node.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kNonce = 1;
constexpr uint64_t kNodeBlock = 77;

Key key_of(uint64_t number) { return make_key(kVolumeNode, Kind::orphan, number); }

TEST(LeafEmptyValues, StayInsideWhateverGoes) {
    alignas(8) unsigned char page[kBlockBytes];
    format_page(page, kNonce, kNodeBlock, 1, 0);
    std::map<uint64_t, std::string> model;
    std::mt19937_64 random(7);
    for (int step = 0; step < 20'000; ++step) {
        const uint64_t number = random() % 40 + 1;
        const Key key = key_of(number);
        const uint32_t index = leaf_lower_bound(page, key);
        if (random() % 2 == 0) {
            const std::string value(random() % 2 * (random() % 30), static_cast<char>(step));
            leaf_put(page, index, key,
                     ByteSpan(reinterpret_cast<const unsigned char*>(value.data()), value.size()));
            model[number] = value;
        } else if (model.erase(number) != 0) {
            leaf_erase(page, index);
        }
        const char* reason = "";
        seal_page(page);
        ASSERT_TRUE(check_page(page, kNonce, kNodeBlock, 1, 0, 1000, reason))
            << reason << ", step " << step;
    }
    for (const auto& [number, value] : model) {
        const ByteSpan found = leaf_value(page, leaf_lower_bound(page, key_of(number)));
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(found.data()), found.size()), value);
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
