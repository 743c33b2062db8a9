// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Volumes without sockets: a path that keeps what it was told, and a volume in a temporary folder.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/server/volume.h"

namespace tiffin::rdma_blk {

class RecordingPath final : public SessionPath {
  public:
    void send_response(const wire::Response& response, ByteSpan payload) override {
        responses.push_back(response);
        payloads.emplace_back(payload.begin(), payload.end());
    }
    void end(const wire::Notice* notice) override {
        ended = true;
        last_notice = notice != nullptr ? notice->reason : 0;
    }
    void request_ignored() override { ignored++; }
    void send_notice(const wire::Notice& notice) override { last_notice = notice.reason; }
    void hold(size_t payload_bytes, size_t answer_bytes) override {
        held_bytes += payload_bytes + answer_bytes;
    }
    void release_held(size_t payload_bytes, size_t answer_bytes) override {
        held_bytes -= payload_bytes + answer_bytes;
    }
    void wake() override { wakes++; }

    std::vector<wire::Response> responses;
    std::vector<std::vector<unsigned char>> payloads;
    bool ended = false;
    int last_notice = -1;
    size_t held_bytes = 0;
    int wakes = 0;
    int ignored = 0;
};

inline constexpr uint64_t kSecondNs = 1'000'000'000;

class VolumeFixture : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/tiffind-test-XXXXXX";
        ASSERT_NE(mkdtemp(folder), nullptr);
        folder_ = folder;
        directory_ = std::make_unique<StateDirectory>(folder_);
        ASSERT_TRUE(directory_->prepare().ok());
        state_.name = "volume";
        state_.data_bytes = 1 << 20;
        state_.words_bytes = 4096;
        state_.uuid[0] = 9;
        state_.key.bytes[0] = 1;
        options_.session_count = 4;
        options_.slot_count = 8;
        options_.lease_timeout_ms = 60000;
    }
    void TearDown() override {
        volume_.reset();
        std::filesystem::remove_all(folder_);
    }

    void start(bool is_new, KeptMemory kept = {}) {
        static constexpr unsigned char kServerUuid[16] = {8};
        if (is_new) {
            ASSERT_TRUE(directory_->save(state_).ok());
        }
        Result<VolumeState> state = directory_->load("volume");
        ASSERT_TRUE(state.ok());
        auto volume = Volume::start(*directory_, *state, is_new, std::move(kept), options_,
                                    kServerUuid, nullptr, flusher_, now_ns_);
        ASSERT_TRUE(volume.ok()) << static_cast<int>(volume.error());
        volume_ = volume.release_value();
    }
    // As if the process had been killed: `keeps` says whether a keeper had the memory.
    void restart(bool keeps) {
        KeptMemory kept;
        if (keeps) {
            kept.data.reset(dup(volume_->data_descriptor()));
            kept.control.reset(dup(volume_->control_descriptor()));
        }
        volume_.reset();
        start(false, std::move(kept));
    }

    struct Client {
        unsigned char uuid[16] = {};
        std::shared_ptr<RecordingPath> path = std::make_shared<RecordingPath>();
        std::shared_ptr<VolumeSession> session;
        wire::SessionOpened opened{};
        uint64_t next_sequence = 1;
    };

    static Client client(unsigned char number) {
        Client result;
        result.uuid[0] = number;
        return result;
    }
    static wire::SessionOpen message(const Client& client, wire::SessionMode mode, bool force) {
        wire::SessionOpen open{};
        std::memcpy(open.client_uuid, client.uuid, 16);
        open.next_sequence = 1;
        open.incarnation = 1;
        open.slot_count = 8;
        open.mode = static_cast<uint8_t>(mode);
        open.flags = force ? wire::open_flag::force : 0;
        std::snprintf(open.holder_text, sizeof(open.holder_text), "client %d", client.uuid[0]);
        return open;
    }
    Volume::OpenAnswer open(Client& client, wire::SessionMode mode, bool force = false,
                            bool is_reader = false) {
        return take(client, volume_->open_session(message(client, mode, force), ByteSpan(),
                                                  client.uuid, is_reader, client.path, now_ns_));
    }
    Volume::OpenAnswer resume(Client& client, const std::vector<wire::OutstandingEntry>& entries,
                              bool is_reader = false) {
        const auto mode = is_reader ? wire::SessionMode::read : wire::SessionMode::write;
        wire::SessionOpen open = message(client, mode, false);
        open.session_id = client.opened.session_id;
        open.epoch = client.opened.epoch;
        open.next_sequence = client.next_sequence;
        open.incarnation = client.opened.incarnation + 1;
        open.outstanding_count = static_cast<uint16_t>(entries.size());
        client.path = std::make_shared<RecordingPath>();
        const ByteSpan bytes(reinterpret_cast<const unsigned char*>(entries.data()),
                             entries.size() * sizeof(wire::OutstandingEntry));
        return take(client, volume_->open_session(open, bytes, client.uuid, is_reader, client.path,
                                                  now_ns_));
    }
    static Volume::OpenAnswer take(Client& client, Volume::OpenAnswer answer) {
        if (answer.kind == Volume::OpenAnswer::Kind::opened) {
            client.session = answer.session;
            client.opened = answer.opened;
        }
        return answer;
    }
    static wire::Request request(Client& client, OperationKind kind, uint64_t offset_bytes,
                                 uint32_t length_bytes, uint16_t slot = 0) {
        wire::Request request{};
        request.session_id = client.opened.session_id;
        request.epoch = client.opened.epoch;
        request.incarnation = client.opened.incarnation;
        request.sequence = client.next_sequence++;
        request.operation = static_cast<uint8_t>(kind);
        request.offset_bytes = offset_bytes;
        request.length_bytes = length_bytes;
        request.slot = slot;
        return request;
    }
    // The last answer to it.
    static wire::Response send(Client& client, const wire::Request& request,
                               const std::string& payload = "") {
        const auto* bytes = reinterpret_cast<const unsigned char*>(payload.data());
        EXPECT_TRUE(
            client.session->handle_request(client.path, request, ByteSpan(bytes, payload.size()))
                .ok());
        return client.path->responses.empty() ? wire::Response{} : client.path->responses.back();
    }
    wire::Response write(Client& client, uint64_t offset_bytes, const std::string& text,
                         uint16_t slot = 0) {
        return send(client,
                    request(client, OperationKind::write, offset_bytes,
                            static_cast<uint32_t>(text.size()), slot),
                    text);
    }
    std::string content(uint64_t offset_bytes, size_t size_bytes) const {
        return {reinterpret_cast<const char*>(volume_->memory().data) + offset_bytes, size_bytes};
    }

    std::string folder_;
    std::unique_ptr<StateDirectory> directory_;
    VolumeState state_;
    VolumeOptions options_;
    Flusher* flusher_ = nullptr;  // outlives the volume
    std::unique_ptr<Volume> volume_;
    uint64_t now_ns_ = 1000 * kSecondNs;
};

}  // namespace tiffin::rdma_blk
