// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One message of the tcp protocol, any type, in clear.
#include <gtest/gtest.h>

#include "fs/vfs/host.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/unit/rdma_blk/wire/messages.h"

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    std::vector<Input> inputs;
    for (const auto& sample : rdma_blk::wire::sample_messages()) {
        inputs.push_back(sample.bytes);
    }
    return inputs;
}

void repair(Input& input) { rdma_blk::wire::repair_checksum(input); }

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    (void)tiffin::rdma_blk::wire::parse_like_a_receiver(
        std::vector<unsigned char>(data, data + size));
    // What was accepted has been compared with its bounds.
    TIFFIN_ASSERT(!testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed());
    return 0;
}
