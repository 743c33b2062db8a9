// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client of a MemoryServer, and short ways to its operations.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/open.h"
#include "tests/support/faulty_link.h"
#include "tests/unit/rdma_blk/transport/memory_server.h"

namespace tiffin::rdma_blk::test {

// One operation with one buffer.
struct Io {
    Operation operation;
    vfs::IoVector buffer;

    Io() = default;
    Io(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        set(kind, offset_bytes, data, size_bytes);
    }
    void set(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        operation.kind = kind;
        operation.offset_bytes = offset_bytes;
        buffer = {data, size_bytes};
        operation.buffers = &buffer;
        operation.buffer_count = 1;
    }
    Outcome outcome() const { return operation.outcome; }
};

class Recorder final : public ConnectionListener {
  public:
    void connection_changed(const ConnectionInfo& info) override {
        last_ = info.state;
        changes_++;
    }
    ConnectionState last() const { return last_; }
    int changes() const { return changes_; }

  private:
    std::atomic<ConnectionState> last_{ConnectionState::connecting};
    std::atomic<int> changes_{0};
};

class ClientFixture {
  public:
    explicit ClientFixture(bool encrypts = false) {
        options.mode = OpenOptions::Mode::write;
        options.encrypt = encrypts;
        std::memcpy(options.key, MemoryServer::kKey, sizeof(options.key));
        options.volume_name = "volume";
        options.holder_text = "the test";
        options.client_uuid[0] = 1;
        options.slot_count = 8;
    }
    ~ClientFixture() { close(); }

    // Also when a test has closed it.
    void close() {
        if (memory && !is_closed) {
            memory->close();
            is_closed = true;
        }
    }
    Result<void> try_open(uint16_t port) {
        RemoteAddress address{"127.0.0.1", port, TransportChoice::tcp};
        memory = TRY(open_remote_memory(address, options, &recorder, holder, problem));
        return {};
    }
    void open(uint16_t port) {
        const auto opened = try_open(port);
        ASSERT_TRUE(opened.ok()) << problem;
    }

    void run(Operation& operation) {
        memory->submit(operation);
        memory->wait(operation);
    }
    // `error` is for tests of one thread, and of the last operation that was not executed.
    Outcome note(const Operation& operation) {
        if (operation.outcome != Outcome::executed) {
            error = operation.error;
        }
        return operation.outcome;
    }
    Outcome write(uint64_t offset_bytes, const void* data, size_t size_bytes) {
        Io io(OperationKind::write, offset_bytes, const_cast<void*>(data), size_bytes);
        run(io.operation);
        return note(io.operation);
    }
    Outcome read(uint64_t offset_bytes, void* data, size_t size_bytes) {
        Io io(OperationKind::read, offset_bytes, data, size_bytes);
        run(io.operation);
        return note(io.operation);
    }
    Outcome flush() {
        Operation operation;
        operation.kind = OperationKind::flush;
        run(operation);
        return note(operation);
    }
    // The value before.
    uint64_t add(uint64_t offset_bytes, uint64_t operand) {
        Operation operation;
        operation.kind = OperationKind::fetch_add;
        operation.offset_bytes = offset_bytes;
        operation.operand = operand;
        run(operation);
        EXPECT_EQ(note(operation), Outcome::executed);
        return operation.old_value;
    }

    OpenOptions options;
    Recorder recorder;
    Holder holder;
    std::string problem;
    Error error = Error::eio;
    bool is_closed = false;
    std::unique_ptr<RemoteMemory> memory;
};

}  // namespace tiffin::rdma_blk::test
