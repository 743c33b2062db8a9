// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Operations that nobody waits for.
#pragma once

#include <unistd.h>

#include <atomic>

#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {

template <typename Condition>
void wait_until(Condition condition) {
    while (!condition()) {
        usleep(200);
    }
}

// Operations with a function of completion; each must be called once.
struct Asynchronous {
    Io io;
    std::atomic<int> completions{0};

    void set(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        io.set(kind, offset_bytes, data, size_bytes);
        io.operation.owner = this;
        io.operation.complete = [](Operation& operation) {
            static_cast<Asynchronous*>(operation.owner)->completions++;
        };
    }
    bool is_done() const { return completions.load() != 0; }
};

}  // namespace tiffin::rdma_blk::test
