// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/transactions_memory.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "bench/links/linked_memory.h"
#include "fs/vfs/host.h"
#include "fuse/host/remote_device.h"

namespace tiffin::bench {
namespace {

using rdma_blk::LinkTrial;
using rdma_blk::Operation;
using rdma_blk::OperationKind;
using rdma_blk::Outcome;
using rdma_blk::RemoteMemory;

constexpr size_t kBulkBytes = size_t{256} << 10;
constexpr uint64_t kBulkPatienceNs = 30'000'000'000;

LinkTrial trial_of(Way way) {
    return way == Way::resend_all      ? LinkTrial::resend_all
           : way == Way::reconnect_all ? LinkTrial::reconnect_all
                                       : LinkTrial::none;
}

}  // namespace

// ---- A batch -------------------------------------------------------------------------------------------------

Operation& Batch::add(OperationKind kind, uint64_t offset, void* data, size_t size) {
    if (count_ == kMost) {
        stop("a batch has too many operations");
    }
    Operation& operation = operations_[count_];
    pieces_[count_] = {data, size};
    operation.kind = kind;
    operation.offset_bytes = offset;
    operation.buffers = &pieces_[count_];
    operation.buffer_count = 1;
    operation.after_earlier = false;
    count_++;
    return operation;
}

void Batch::read(uint64_t offset, void* place, size_t size) {
    add(OperationKind::read, offset, place, size);
}

void Batch::write(uint64_t offset, const void* data, size_t size) {
    add(OperationKind::write, offset, const_cast<void*>(data), size);
}

void Batch::write_word(uint64_t offset, uint64_t value) {
    uint64_t& word = words_[std::min(count_, kMost - 1)];
    word = value;
    add(OperationKind::write, offset, &word, sizeof(word));
}

void Batch::compare_swap(uint64_t offset, uint64_t expected, uint64_t value) {
    Operation& operation = add(OperationKind::compare_swap, offset,
                               &words_[std::min(count_, kMost - 1)], sizeof(uint64_t));
    operation.compare = expected;
    operation.operand = value;
}

void Batch::fetch_add(uint64_t offset, uint64_t amount) {
    add(OperationKind::fetch_add, offset, &words_[std::min(count_, kMost - 1)], sizeof(uint64_t))
        .operand = amount;
}

// ---- Sessions ------------------------------------------------------------------------------------------------

TransactionMemory::TransactionMemory(const std::string& address, Way way)
    : address_(parse_volume(address)), way_(way) {
    rdma_blk::RemoteAddress server = address_.servers.front();
    server.link_trial = trial_of(way);
    if (way == Way::resubmit) {
        server.more_links.clear();
    }
    // The way before may have left its lease behind.
    session_ = open(server, true);
    if (!session_) {
        stop("the volume cannot be opened");
    }
}

std::shared_ptr<RemoteMemory> TransactionMemory::open(const rdma_blk::RemoteAddress& server,
                                                      bool force) const {
    fuse::RemoteVolumeAddress address = address_;
    address.servers = {server};
    auto opened = fuse::open_remote_session(address, {.force = force, .slot_count = kSlots});
    if (!opened.ok()) {
        std::fprintf(stderr, "transactions_load: %s\n", opened.problem().text.c_str());
        return nullptr;
    }
    return {opened->release(), [](RemoteMemory* memory) {
                memory->close();
                delete memory;
            }};
}

std::shared_ptr<RemoteMemory> TransactionMemory::session(uint64_t& number) const {
    std::lock_guard lock(mutex_);
    number = number_;
    return session_;
}

// Unless another thread has done so since session `number`. The server executes nothing more of the old session then.
void TransactionMemory::change_link(uint64_t number) {
    std::lock_guard lock(mutex_);
    if (number_ != number) {
        return;
    }
    const rdma_blk::RemoteAddress& server = address_.servers.front();
    std::shared_ptr<RemoteMemory> made;
    for (size_t attempt = 0; !made; attempt++) {
        if (attempt == 20) {
            stop("no link leads to the server");
        }
        const size_t link = (link_.load() + 1) % (1 + server.more_links.size());
        rdma_blk::RemoteAddress other = server;
        other.more_links.clear();
        if (link > 0) {
            other.host = server.more_links[link - 1].host;
            other.port = server.more_links[link - 1].port;
        }
        link_.store(link);
        made = open(other, true);
    }
    session_ = std::move(made);
    number_++;
}

size_t TransactionMemory::active(size_t otherwise) const {
    if (way_ == Way::resubmit) {
        return link_.load();
    }
    return active_link(*session_, otherwise);
}

uint64_t TransactionMemory::failures_seen() const {
    if (way_ == Way::resubmit) {
        std::lock_guard lock(mutex_);
        return number_;
    }
    const rdma_blk::Statistics now = session_->statistics();
    return now.failovers + now.reconnections;
}

void TransactionMemory::wait_until_well() const {
    if (way_ != Way::resubmit) {
        wait_until_links_are_well(*session_);
    }
}

// ---- Operations ----------------------------------------------------------------------------------------------

void TransactionMemory::run(Batch& batch, uint64_t patience_ns) {
    std::array<bool, Batch::kMost> is_executed{};
    while (true) {
        uint64_t number = 0;
        const std::shared_ptr<RemoteMemory> memory = session(number);
        Operation* first = nullptr;
        Operation* last = nullptr;
        for (size_t index = 0; index < batch.count_; index++) {
            if (is_executed[index]) {
                continue;
            }
            Operation& operation = batch.operations_[index];
            operation.reset();
            operation.deadline_ns = way_ == Way::resubmit ? host::monotonic_ns() + patience_ns : 0;
            (last != nullptr ? last->next : first) = &operation;
            last = &operation;
        }
        if (first == nullptr) {
            return;
        }
        memory->submit(*first);
        bool are_all_executed = true;
        for (size_t index = 0; index < batch.count_; index++) {
            if (is_executed[index]) {
                continue;
            }
            Operation& operation = batch.operations_[index];
            memory->wait(operation);
            is_executed[index] = operation.outcome == Outcome::executed;
            are_all_executed = are_all_executed && is_executed[index];
            if (way_ != Way::resubmit && !is_executed[index]) {
                stop("an operation ended with outcome " +
                     std::to_string(static_cast<int>(operation.outcome)) + ", error " +
                     std::to_string(static_cast<int>(operation.error)));
            }
        }
        if (are_all_executed) {
            return;
        }
        change_link(number);
    }
}

template <typename Add>
void TransactionMemory::run_in_pieces(size_t size, Add add) {
    Batch batch;
    for (size_t done = 0; done < size;) {
        batch.clear();
        for (; done < size && batch.size() < 16; done += kBulkBytes) {
            add(batch, done, std::min(kBulkBytes, size - done));
        }
        run(batch, kBulkPatienceNs);
    }
}

void TransactionMemory::read_all(uint64_t offset, void* place, size_t size) {
    run_in_pieces(size, [&](Batch& batch, size_t done, size_t bytes) {
        batch.read(offset + done, static_cast<char*>(place) + done, bytes);
    });
}

void TransactionMemory::write_all(uint64_t offset, const void* data, size_t size) {
    run_in_pieces(size, [&](Batch& batch, size_t done, size_t bytes) {
        batch.write(offset + done, static_cast<const char*>(data) + done, bytes);
    });
}

}  // namespace tiffin::bench
