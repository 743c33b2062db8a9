// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/vm/module/memory_device.h"

#include "fs/base/text.h"

namespace tiffin::vm {
namespace {

constexpr uint64_t kSectorBytes = 512;

uint64_t length_of(const vfs::IoRequest& request) {
    uint64_t length_bytes = request.length_bytes;
    for (size_t i = 0; i < request.buffer_count; ++i) {
        length_bytes += request.buffers[i].size_bytes;
    }
    return length_bytes;
}

}  // namespace

MemoryDevice::~MemoryDevice() {
    tiffin_interrupt_destroy(interrupt_);
    tiffin_device_memory_release(memory_);
}

Result<void> MemoryDevice::open(uint64_t size_bytes) {
    geometry_.size_bytes = size_bytes;
    geometry_.write_unit_bytes = kind_ == DeviceKind::direct ? 64 : kSectorBytes;
    geometry_.volatile_cache = kind_ != DeviceKind::direct;
    geometry_.supports_discard = true;
    memory_ = static_cast<unsigned char*>(tiffin_device_memory_allocate(size_bytes));
    if (memory_ == nullptr) {
        return Error::enomem;
    }
    if (kind_ == DeviceKind::interrupt) {
        interrupt_ = tiffin_interrupt_create(interrupted, this);
        if (interrupt_ == nullptr) {
            return Error::enomem;
        }
    }
    return {};
}

const void* MemoryDevice::direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
    if (kind_ != DeviceKind::direct || offset_bytes > geometry_.size_bytes ||
        size_bytes > geometry_.size_bytes - offset_bytes) {
        return nullptr;
    }
    return memory_ + offset_bytes;
}

bool MemoryDevice::keeps_contract(const vfs::IoRequest& request) {
    const char* breach = nullptr;
    for (size_t i = 0; i < request.buffer_count; ++i) {
        const vfs::IoVector& buffer = request.buffers[i];
        if (tiffin_is_on_stack(buffer.data)) {
            breach = "a buffer lies on the stack";
        }
        const auto address = reinterpret_cast<uintptr_t>(buffer.data);
        if ((address & (kSectorBytes - 1)) != 0) {
            unaligned_.fetch_add(1, std::memory_order_relaxed);
        }
    }
    if (((request.offset_bytes | length_of(request)) & (geometry_.write_unit_bytes - 1)) != 0) {
        breach = "offset or length is no multiple of the write unit";
    }
    if (breach == nullptr) {
        return true;
    }
    breaches_.fetch_add(1, std::memory_order_relaxed);
    log_line(host::LogLevel::error, "a request at byte ", request.offset_bytes,
             " breaks the contract: ", breach);
    return false;
}

Result<void> MemoryDevice::carry_out(const vfs::IoRequest& request) {
    if (stopped_.load(std::memory_order_relaxed) || request.offset_bytes > geometry_.size_bytes ||
        length_of(request) > geometry_.size_bytes - request.offset_bytes) {
        return Error::eio;
    }
    unsigned char* place = memory_ + request.offset_bytes;
    for (size_t i = 0; i < request.buffer_count; ++i) {
        const vfs::IoVector& buffer = request.buffers[i];
        if (request.operation == vfs::IoOperation::read) {
            __builtin_memcpy(buffer.data, place, buffer.size_bytes);
        } else {
            __builtin_memcpy(place, buffer.data, buffer.size_bytes);
        }
        place += buffer.size_bytes;
    }
    return {};
}

void MemoryDevice::submit(vfs::IoRequest& request) {
    requests_.fetch_add(1, std::memory_order_relaxed);
    if (!keeps_contract(request)) {
        request.complete(request, Error::einval);
        return;
    }
    if (kind_ == DeviceKind::direct) {
        request.complete(request, carry_out(request));
        return;
    }
    vfs::IoRequest* first = pending_.load(std::memory_order_relaxed);
    do {
        request.next = first;
    } while (!pending_.compare_exchange_weak(first, &request, std::memory_order_release,
                                             std::memory_order_relaxed));
    tiffin_interrupt_raise(interrupt_);
}

// The last that was submitted completes first: nobody may count on an order.
void MemoryDevice::interrupted(void* argument) {
    auto* device = static_cast<MemoryDevice*>(argument);
    vfs::IoRequest* request = device->pending_.exchange(nullptr, std::memory_order_acquire);
    while (request != nullptr) {
        // When it has completed, the request is its owner's.
        vfs::IoRequest* const next = request->next;
        if (tiffin_in_interrupt()) {
            device->in_interrupt_.fetch_add(1, std::memory_order_relaxed);
        }
        request->complete(*request, device->carry_out(*request));
        request = next;
    }
}

}  // namespace tiffin::vm
