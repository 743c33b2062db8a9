// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What is read from servers' control spaces: the header, and the stripe descriptions of up to three servers.
//
// Input: a control header; a byte with the number of servers; for each a description.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/volume/stripe_description.h"
#include "rdma_blk/wire/control_area.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kServers = 3;
// Without what is reserved.
constexpr size_t kHeadBytes = 208;
constexpr size_t kDescriptionsOffset = kHeadBytes + 1;

void name_member(StripeMember& member, size_t index) {
    std::memset(&member, static_cast<int>(index + 1), sizeof(member));
    member.empty_since_incarnation = 1;
}

}  // namespace
}  // namespace tiffin::rdma_blk

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk;
    std::vector<Input> inputs;
    for (uint8_t count = 1; count <= kServers; count++) {
        const auto layout = MUST(wire::make_control_layout(2, 4, 1, 4096));
        wire::ControlHeader header{};
        header.magic = wire::kControlMagic;
        header.version = wire::kControlVersion;
        header.control_bytes = layout.control_bytes;
        header.words_offset = layout.words_offset;
        header.words_bytes = layout.words_bytes;
        header.sessions_offset = layout.sessions_offset;
        header.session_count = layout.session_count;
        header.session_stride_bytes = layout.session_stride_bytes;
        header.slot_count = layout.slot_count;
        header.client_offset = layout.client_offset;
        header.log_entry_count = layout.log_entry_count;
        header.data_bytes = 1 << 20;
        header.write_unit_bytes = 64;
        wire::seal_control_header(header);
        Input input(kHeadBytes);
        std::memcpy(input.data(), &header, kHeadBytes);
        input.push_back(static_cast<unsigned char>(count - 1));
        StripeFinding findings[kServers];
        for (size_t i = 0; i < kServers; i++) {
            name_member(findings[i].member, i);
        }
        for (uint32_t i = 0; i < count; i++) {
            StripeDescription description{};
            make_stripe_description(Span<const StripeFinding>(findings, count), i, 65536,
                                    description);
            description.state = static_cast<uint64_t>(StripeState::formed);
            const auto* bytes = reinterpret_cast<const unsigned char*>(&description);
            input.insert(input.end(), bytes, bytes + sizeof(description));
        }
        inputs.push_back(input);
    }
    return inputs;
}

void repair(Input& input) {
    using namespace rdma_blk;
    if (input.size() < kDescriptionsOffset) {
        return;
    }
    wire::ControlHeader header{};
    std::memcpy(&header, input.data(), kHeadBytes);
    wire::seal_control_header(header);
    std::memcpy(input.data(), &header, kHeadBytes);
    for (size_t place = kDescriptionsOffset; place + sizeof(StripeDescription) <= input.size();
         place += sizeof(StripeDescription)) {
        StripeDescription description;
        std::memcpy(&description, input.data() + place, sizeof(description));
        const uint64_t state = description.state;
        description.state = 0;
        description.checksum = 0;
        description.checksum = host::crc32c(0, &description, sizeof(description));
        description.state = state;
        std::memcpy(input.data() + place, &description, sizeof(description));
    }
}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    using namespace tiffin::rdma_blk;
    fuzz::Bytes bytes(data, size);
    wire::ControlHeader header{};
    const fuzz::Input head = bytes.take_bytes(kHeadBytes);
    std::copy(head.begin(), head.end(), reinterpret_cast<unsigned char*>(&header));
    auto layout = wire::check_control_header(header, header.control_bytes);
    if (layout.ok()) {
        TIFFIN_ASSERT(layout->words_offset + layout->words_bytes <= layout->control_bytes);
        TIFFIN_ASSERT(layout->session_count > 0 &&
                      layout->session_offset(layout->session_count) <= layout->control_bytes);
    }
    const size_t count = bytes.byte() % kServers + size_t{1};
    StripeFinding findings[kServers];
    for (size_t i = 0; i < count; i++) {
        name_member(findings[i].member, i);
        findings[i].description = bytes.take<StripeDescription>();
        findings[i].words_unknown = bytes.byte() % 4 == 0;
    }
    const bool may_write = bytes.byte() % 2 != 0;
    std::string problem;
    auto verdict = judge_stripe(Span<const StripeFinding>(findings, count), 0, may_write, problem);
    if (verdict.ok()) {
        TIFFIN_ASSERT(is_stripe_size(verdict->stripe_bytes));
    } else {
        TIFFIN_ASSERT(!problem.empty());
    }
    return 0;
}
