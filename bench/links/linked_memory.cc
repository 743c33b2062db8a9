// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/linked_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "fs/vfs/host.h"
#include "fuse/host/remote_device.h"
#include "fuse/host/size_text.h"

namespace tiffin::bench {
namespace {

using rdma_blk::Operation;
using rdma_blk::OperationKind;

bool is_atomic(OperationKind kind) {
    return kind == OperationKind::fetch_add || kind == OperationKind::compare_swap;
}

}  // namespace

void stop(const std::string& problem) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, problem.c_str());
    std::_Exit(EXIT_FAILURE);
}

std::string OperationShape::text() const {
    std::string text = rdma_blk::kOperationNames[static_cast<size_t>(kind)];
    if (kind == OperationKind::read || kind == OperationKind::write) {
        text += " " + fuse::format_size(size_bytes);
    }
    return text;
}

fuse::RemoteVolumeAddress parse_volume(const std::string& address) {
    constexpr std::string_view kScheme = "tiffin:";
    if (!std::string_view(address).starts_with(kScheme)) {
        stop("'" + address + "' is not the address of a volume");
    }
    auto parsed = fuse::parse_remote_address(std::string_view(address).substr(kScheme.size()));
    if (!parsed.ok()) {
        stop(parsed.problem().text);
    }
    return std::move(*parsed);
}

size_t active_link(const rdma_blk::RemoteMemory& memory, size_t otherwise) {
    const rdma_blk::Statistics now = memory.statistics();
    for (size_t link = 0; link < now.path_count; link++) {
        if (std::string_view(now.paths[link].state) == "active") {
            return link;
        }
    }
    return otherwise;
}

void wait_until_links_are_well(const rdma_blk::RemoteMemory& memory) {
    while (true) {
        const rdma_blk::Statistics now = memory.statistics();
        size_t well = 0;
        for (size_t link = 0; link < now.path_count; link++) {
            const std::string_view state = now.paths[link].state;
            well += state == "active" || state == "ready" ? 1 : 0;
        }
        if (now.path_count > 0 && well == now.path_count) {
            return;
        }
        usleep(2000);
    }
}

LinkedMemory::LinkedMemory(const std::string& address, rdma_blk::LinkTrial trial) {
    fuse::RemoteVolumeAddress parsed = parse_volume(address);
    parsed.busy_poll_us = parsed.busy_poll_us.value_or(rdma_blk::OpenOptions().busy_poll_us);
    parsed.servers.front().link_trial = trial;
    auto opened = fuse::open_remote_session(parsed, {.slot_count = kSlots});
    if (!opened.ok()) {
        stop(opened.problem().text);
    }
    memory_ = std::move(*opened);
    if (memory_->limits().operations_in_flight < kSlots) {
        stop("the server grants only " + std::to_string(memory_->limits().operations_in_flight) +
             " slots");
    }
}

LinkedMemory::~LinkedMemory() { memory_->close(); }

const std::vector<uint64_t>& LinkedMemory::run(const OperationShape& shape) {
    const size_t bytes = is_atomic(shape.kind) ? sizeof(uint64_t) : shape.size_bytes;
    const bool has_buffer = shape.kind != OperationKind::flush;
    buffer_.resize(std::max(buffer_.size(), bytes * shape.depth));
    std::vector<Operation> operations(shape.depth);
    std::vector<vfs::IoVector> pieces(shape.depth);
    for (size_t index = 0; index < shape.depth; index++) {
        pieces[index] = {&buffer_[index * bytes], bytes};
        Operation& operation = operations[index];
        operation.kind = shape.kind;
        operation.offset_bytes = has_buffer ? index * std::max<size_t>(bytes, 64) : 0;
        operation.buffers = &pieces[index];
        operation.buffer_count = has_buffer ? 1 : 0;
        operation.operand = 1;
        operation.next = index + 1 < shape.depth ? &operations[index + 1] : nullptr;
    }
    completed_ns_.clear();
    memory_->submit(operations.front());
    for (Operation& operation : operations) {
        memory_->wait(operation);
        completed_ns_.push_back(host::monotonic_ns());
        if (operation.outcome != rdma_blk::Outcome::executed) {
            stop("an operation ended with outcome " +
                 std::to_string(static_cast<int>(operation.outcome)));
        }
    }
    return completed_ns_;
}

}  // namespace tiffin::bench
