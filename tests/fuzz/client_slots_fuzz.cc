// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a server may answer to a client's slots: responses of any content at any time, connections lost, and outcomes of
// what was outstanding. Each operation completes once, and nothing else does.
//
// Input: a byte, 1: devices execute; then steps: a byte, what it says.
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/request_slots.h"
#include "rdma_blk/wire/parse.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint16_t kSlots = 4;
constexpr size_t kOperations = 12;

enum Step : uint8_t { submit, send, answer, answer_right, lose, resume, step_count };

class Client {
  public:
    Client() : slots_(MUST(RequestSlots::create(kSlots))) { slots_->opened(kSlots); }
    ~Client() {
        if (is_connected_) {
            slots_->connection_lost(now_ns_);
        }
        slots_->fail_all(Error::enodev);
        TIFFIN_ASSERT(slots_->pending_count() == 0);
        for (size_t i = 0; i < submitted_; i++) {
            TIFFIN_ASSERT(places_[i].completions == 1);
        }
    }

    void step(fuzz::Bytes& bytes) {
        now_ns_ += 1000;
        switch (bytes.byte() % step_count) {
            case submit:
                submit_one(bytes);
                break;
            case send:
                send_one();
                break;
            case answer:
                take_answer(bytes.take<wire::Response>());
                break;
            case answer_right:
                answer_sent(bytes);
                break;
            case lose:
                slots_->connection_lost(now_ns_);
                is_connected_ = false;
                break;
            default:
                resume_with(bytes);
        }
        TIFFIN_ASSERT(slots_->sent_count() <= kSlots);
    }

  private:
    struct Place {
        Operation operation;
        vfs::IoVector buffer;
        unsigned char bytes[64] = {};
        int completions = 0;
    };

    void submit_one(fuzz::Bytes& bytes) {
        if (submitted_ == kOperations) {
            return;
        }
        Place& place = places_[submitted_++];
        place.buffer = {place.bytes, sizeof(place.bytes)};
        place.operation.kind = static_cast<OperationKind>(1 + bytes.byte() % 4);
        place.operation.offset_bytes = bytes.byte() * uint64_t{8};
        place.operation.buffers = &place.buffer;
        place.operation.buffer_count = 1;
        place.operation.after_earlier = bytes.byte() % 2 == 1;
        place.operation.owner = &place;
        place.operation.complete = [](Operation& operation) {
            static_cast<Place*>(operation.owner)->completions++;
        };
        slots_->submit(place.operation);
    }

    void send_one() {
        wire::Request request{};
        if (is_connected_ && slots_->take_next(request) != nullptr) {
            TIFFIN_ASSERT(request.slot < kSlots);
            sent_ = request;
        }
    }

    // As the parser lets it through.
    void take_answer(const wire::Response& raw) {
        if (!is_connected_ || raw.payload_bytes > wire::kMaxTransferBytes) {
            return;
        }
        const ByteSpan fixed(reinterpret_cast<const unsigned char*>(&raw), sizeof(raw));
        const auto header =
            wire::make_header(wire::MessageType::response, 0, fixed, raw.payload_bytes);
        auto response = wire::parse_response(header, fixed);
        if (!response.ok()) {
            return;
        }
        auto found = slots_->find(*response);
        if (found.ok() && *found != nullptr) {
            TIFFIN_ASSERT(static_cast<Place*>((*found)->owner)->completions == 0);
            slots_->finish(*response);
        }
    }

    void answer_sent(fuzz::Bytes& bytes) {
        wire::Response response{};
        response.sequence = sent_.sequence;
        response.slot = sent_.slot;
        response.operation = sent_.operation;
        response.outcome = static_cast<uint8_t>(1 + bytes.byte() % 3);
        response.error = response.outcome == 1 ? uint16_t{0} : uint16_t{5};
        const bool is_read = sent_.operation == static_cast<uint8_t>(OperationKind::read);
        response.payload_bytes = is_read && response.outcome == 1 ? sent_.length_bytes : 0;
        take_answer(response);
    }

    void resume_with(fuzz::Bytes& bytes) {
        if (is_connected_) {
            return;
        }
        wire::OutstandingEntry entries[kSlots];
        const uint16_t count = slots_->fill_outstanding(entries);
        TIFFIN_ASSERT(count <= kSlots);
        const uint8_t how = bytes.byte();
        if (how % 4 == 0) {
            slots_->restarted(static_cast<uint16_t>(1 + how / 4 % kSlots));
            is_connected_ = true;
            return;
        }
        fuzz::Input outcomes;
        const size_t given = how % 4 == 1 ? bytes.byte() % (kSlots + 2U) : count;
        for (size_t i = 0; i < given; i++) {
            const unsigned char outcome = bytes.byte() % 4;
            if (wire::parse_outcome(ByteSpan(&outcome, 1), 0).ok()) {
                outcomes.push_back(outcome);
            }
        }
        is_connected_ = slots_->resumed(ByteSpan(outcomes.data(), outcomes.size())).ok();
        if (!is_connected_) {
            slots_->connection_lost(now_ns_);
        }
    }

    std::unique_ptr<RequestSlots> slots_;
    Place places_[kOperations];
    size_t submitted_ = 0;
    wire::Request sent_{};
    uint64_t now_ns_ = 1;
    bool is_connected_ = true;
};

}  // namespace
}  // namespace tiffin::rdma_blk

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk;
    // Three operations, sent and answered; one is lost and settled; one starts over.
    Input plain = {0,    submit,       0, 1, 0, send, answer_right, 0, submit, 1, 2, 1,
                   send, answer_right, 1};
    Input resumed = {0,      submit, 1, 1, 0,    submit,       2, 2, 1, send, send, lose,
                     resume, 2,      1, 2, send, answer_right, 0};
    Input restarted = {0,    submit, 2,      1,  0,    submit,       1, 3, 0,
                       send, lose,   resume, 12, send, answer_right, 0};
    Input by_devices = {1, submit, 2, 1, 0, submit, 0, 3, 0, send, send, lose, resume, 2, 1, 1};
    return {plain, resumed, restarted, by_devices};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    fuzz::Bytes bytes(data, size);
    rdma_blk::Client client;
    while (bytes.left() > 0) {
        client.step(bytes);
    }
    return 0;
}
