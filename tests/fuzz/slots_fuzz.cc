// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a hostile client may do to its session at the server, message by message: requests, and new incarnations
// with lists of what is outstanding, over slots that may hold anything (as memory that was kept).
//
// Input: a byte, 1: the slots begin with what follows (4 entries); then steps: a byte, what it says.
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/slot_table.h"
#include "rdma_blk/wire/parse.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kSlots = 4;
constexpr uint64_t kSpaceBytes = 256;

enum Step : uint8_t { request, incarnation, finish_flush, fence, step_count };

class Server {
  public:
    explicit Server(fuzz::Bytes& bytes) {
        const bool is_recovered = bytes.byte() == 1;
        for (wire::SlotEntry& entry : entries_) {
            entry = is_recovered ? bytes.take<wire::SlotEntry>() : wire::SlotEntry{};
            // A range check came before it was written.
            entry.offset_bytes = entry.offset_bytes % (kSpaceBytes / 8) * 8;
        }
        table_ = MUST(SlotTable::create(Span<wire::SlotEntry>(entries_, kSlots)));
        if (is_recovered) {
            table_->recover(
                1,
                [](void* words, AddressSpace, uint64_t offset_bytes) {
                    return static_cast<uint64_t*>(words)[offset_bytes / 8];
                },
                words_);
        }
        SessionAccess access;
        access.session_id = 7;
        access.volume_epoch = 3;
        access.is_writer = true;
        access.data_bytes = access.control_bytes = access.words_bytes = kSpaceBytes;
        table_->set_access(access);
    }

    void open(fuzz::Bytes& bytes) {
        if (has_flush_) {
            return;  // the caller waits for what is being executed
        }
        const auto next_sequence = bytes.take<uint64_t>();
        const auto number = bytes.take<uint32_t>();
        const fuzz::Input entries =
            bytes.take_bytes(bytes.byte() % (kSlots + 2) * sizeof(wire::OutstandingEntry));
        unsigned char outcomes[kSlots + 2];
        (void)table_->open_incarnation(number, next_sequence,
                                       ByteSpan(entries.data(), entries.size()), outcomes);
    }

    void handle(fuzz::Bytes& bytes) {
        const auto raw = bytes.take<wire::Request>();
        // As the parser lets it through, payload and all.
        const bool carries = (raw.operation == 2 || raw.operation == 5) &&
                             (raw.flags & wire::request_flag::reply_only) == 0;
        const ByteSpan fixed(reinterpret_cast<const unsigned char*>(&raw), sizeof(raw));
        if (raw.length_bytes > wire::kMaxTransferBytes) {
            return;
        }
        const auto header =
            wire::make_header(wire::MessageType::request, 0, fixed, carries ? raw.length_bytes : 0);
        auto parsed = wire::parse_request(header, fixed);
        if (!parsed.ok()) {
            return;
        }
        auto decision = table_->decide(*parsed);
        if (decision.ok()) {
            act(*parsed, *decision);
            serve_ready();
        }
    }

    void end_flush() {
        if (has_flush_) {
            has_flush_ = false;
            (void)table_->finish(flush_, Outcome::executed, Error::eio, 1);
            serve_ready();
        }
    }

    void fence() { table_->fence(); }

  private:
    void act(const wire::Request& request, const RequestDecision& decision) {
        if (decision.action == RequestAction::wait) {
            waiting_[request.slot] = request;
            return;
        }
        if (decision.action != RequestAction::execute) {
            return;
        }
        const bool is_flush = request.operation == static_cast<uint8_t>(OperationKind::flush);
        if (!is_flush) {
            TIFFIN_ASSERT(request.offset_bytes <= kSpaceBytes);
            TIFFIN_ASSERT(request.length_bytes <= kSpaceBytes - request.offset_bytes);
        }
        switch (static_cast<OperationKind>(request.operation)) {
            case OperationKind::compare_swap:
            case OperationKind::fetch_add:
                (void)execute_atomic(*table_, request, &words_[request.offset_bytes / 8]);
                break;
            case OperationKind::flush:
                if (!has_flush_) {  // one at a time goes to a disk
                    flush_ = request;
                    has_flush_ = true;
                    break;
                }
                [[fallthrough]];
            default:
                (void)table_->finish(request, Outcome::executed, Error::eio, 0);
        }
    }

    void serve_ready() {
        ReadyRequest ready;
        while (table_->next_ready(ready)) {
            TIFFIN_ASSERT(ready.slot < kSlots);
            act(waiting_[ready.slot], ready.decision);
        }
    }

    wire::SlotEntry entries_[kSlots];
    uint64_t words_[kSpaceBytes / 8] = {};
    wire::Request waiting_[kSlots] = {};
    wire::Request flush_{};
    bool has_flush_ = false;
    std::unique_ptr<SlotTable> table_;
};

template <typename T>
void put(fuzz::Input& input, const T& value) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    input.insert(input.end(), bytes, bytes + sizeof(value));
}

void put_request(fuzz::Input& input, uint64_t sequence, uint16_t slot, uint8_t operation,
                 uint64_t after) {
    input.push_back(request);
    wire::Request made{};
    made.session_id = 7;
    made.epoch = 3;
    made.sequence = sequence;
    made.after = after;
    made.pending_since = after == 0 ? 0 : 1;
    made.offset_bytes = 8 * slot;
    made.incarnation = 2;
    made.length_bytes = operation == 5 ? 0 : 8;
    made.slot = slot;
    made.operation = operation;
    put(input, made);
}

void put_incarnation(fuzz::Input& input, uint64_t next_sequence, uint32_t number,
                     const std::vector<wire::OutstandingEntry>& entries) {
    input.push_back(incarnation);
    put(input, next_sequence);
    put(input, number);
    input.push_back(static_cast<unsigned char>(entries.size()));
    for (const auto& entry : entries) {
        put(input, entry);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk;
    Input plain = {0};
    put_incarnation(plain, 1, 2, {});
    for (uint16_t i = 0; i < kSlots; i++) {
        put_request(plain, i + 1U, i, static_cast<uint8_t>(1 + i), i == 3 ? 2 : 0);
    }
    Input ordered = {0};
    put_incarnation(ordered, 1, 2, {});
    put_request(ordered, 3, 2, 2, 2);
    put_request(ordered, 2, 1, 5, 1);
    put_request(ordered, 1, 0, 2, 0);
    ordered.push_back(finish_flush);
    Input resumed = {1};
    for (uint16_t i = 0; i < kSlots; i++) {
        wire::SlotEntry entry{};
        entry.sequence = i + 1U;
        entry.new_value = 1;
        entry.offset_bytes = 8 * i;
        entry.outcome = 1;
        entry.state = static_cast<uint8_t>(i % 3);
        entry.operation = static_cast<uint8_t>(2 + i % 3);
        put(resumed, entry);
    }
    put_incarnation(resumed, 7, 2, {{2, 1, 3, {}}, {4, 3, 2, {}}, {5, 0, 2, {}}, {6, 2, 4, {}}});
    put_request(resumed, 5, 0, 2, 0);
    put_request(resumed, 6, 2, 4, 5);
    resumed.push_back(fence);
    put_request(resumed, 7, 1, 2, 0);
    return {plain, ordered, resumed};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    fuzz::Bytes bytes(data, size);
    rdma_blk::Server server(bytes);
    while (bytes.left() > 0) {
        switch (bytes.byte() % rdma_blk::step_count) {
            case rdma_blk::request:
                server.handle(bytes);
                break;
            case rdma_blk::incarnation:
                server.open(bytes);
                break;
            case rdma_blk::finish_flush:
                server.end_flush();
                break;
            default:
                server.fence();
                break;
        }
    }
    return 0;
}
