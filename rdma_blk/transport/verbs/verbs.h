// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The few things of RDMA verbs that clients and servers use, as an interface: rdma_device.cc implements it with
// libibverbs, and tests with memory of their own process, where completions and errors can be made up.
//
// One Device is one port of a network card, with a protection domain. What it makes must be destroyed before it.
// After the destructor of a QueuePair nothing reads or writes memory for it any more, at either side's wish.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk::verbs {

// Memory that the device can use, registered without rights for others. It must stay allocated as long.
class Memory {
  public:
    virtual ~Memory() = default;
    virtual uint32_t local_key() const = 0;
};

// A part of a Memory that the peer of one queue pair may use (a type-2B memory window). bind_window opens it,
// invalidate closes it; key() changes with each.
class Window {
  public:
    virtual ~Window() = default;
    virtual uint32_t key() const = 0;
};

struct Piece {
    void* address = nullptr;
    uint32_t size_bytes = 0;
    uint32_t local_key = 0;  // not used by what is inlined
};

enum class WorkKind : uint8_t {
    read,
    write,
    bind_window,
    invalidate,       // not on unreliable queue pairs: there a window is closed by destroying it
    write_immediate,  // write, and a completion for the peer, which takes one of its receives
    send,             // into the memory of one of the peer's receives
};

struct WorkRequest {
    WorkKind kind = WorkKind::read;
    bool is_signalled = false;  // a success is reported; failures always are
    bool is_fenced = false;     // not before all earlier reads have ended
    bool is_inline =
        false;  // write: the bytes are taken by post(), up to Capabilities::inline_bytes
    uint64_t id = 0;
    // Of this side.
    const Piece* pieces = nullptr;
    uint32_t piece_count = 0;
    uint64_t remote_address = 0;
    uint32_t remote_key = 0;
    uint32_t immediate = 0;  // write_immediate
    // bind_window: of the part of `memory` at `address`; invalidate: `window` only.
    Window* window = nullptr;
    Memory* memory = nullptr;
    void* address = nullptr;
    uint64_t size_bytes = 0;
    bool allows_writes = false;
};

enum class Status : uint8_t {
    success,
    refused,  // the peer's device did not allow it
    lost,     // no answer, or the connection has ended
    failed,   // anything else
};

struct Completion {
    uint64_t id = 0;  // valid after errors, too
    Status status = Status::success;
    // Of a receive that succeeded.
    bool is_receive = false;
    bool has_immediate = false;
    uint32_t immediate = 0;
    uint32_t size_bytes = 0;
};

// Memory for one send of the peer; of no size for a write with an immediate.
struct Receive {
    uint64_t id = 0;
    Piece piece;
};

// A connection with its completion queue. A reliable one executes in order, and breaks as a whole; an unreliable one
// (UC) executes in order what arrives, and whoever sends learns only that it was sent: what is lost, what a window does
// not allow, and what finds no receive at the peer leaves no trace there.
class QueuePair {
  public:
    virtual ~QueuePair() = default;

    // Valid from creation on.
    virtual const wire::QueuePairAddress& address() const = 0;
    // Errors: einval (an address that makes no sense), eio.
    virtual Result<void> connect(const wire::QueuePairAddress& peer) = 0;
    // All at once (one doorbell). At most Limits::queue_depth may be posted and not polled. After an error
    // some may have been posted: destroy the queue pair.
    virtual Result<void> post(const WorkRequest* work, size_t count) = 0;
    // For the peer's sends and immediates, taken in order; of unreliable queue pairs. Errors: eopnotsupp, eio.
    virtual Result<void> post_receives(const Receive* receives, size_t count) {
        (void)receives;
        (void)count;
        return Error::eopnotsupp;
    }
    // Whatever has completed, in order; does not wait. One thread at a time, others may post.
    virtual size_t poll(Completion* completions, size_t capacity) = 0;

    // To sleep (of one that was created to): arm(), poll() once more, then wait until the descriptor is readable,
    // then disarm().
    virtual int event_descriptor() const = 0;
    virtual Result<void> arm() = 0;
    virtual void disarm() = 0;

    // Ends the connection: what was not executed will not be from here on, as far as this side decides, and
    // what has completed can still be polled. Any thread. Errors: eio: the device does not say that it has.
    virtual Result<void> stop() = 0;
    // The end that the destructor makes, and what the device says of it; again after an error. Nothing else may be called
    // then but stop(). Errors: eio: the peer may still come through it.
    virtual Result<void> destroy() = 0;
};

struct Capabilities {
    uint32_t piece_count = 1;   // of one work request
    uint32_t inline_bytes = 0;  // that writes can carry without registered memory
    bool has_windows = false;   // of type 2B
    uint32_t mtu_bytes = 1024;  // of a packet, now: 256 to 4096
    const char* device_name = "";
};

class Device {
  public:
    virtual ~Device() = default;
    virtual const Capabilities& capabilities() const = 0;
    // Windows can be bound to what `for_windows` says. Errors: enomem, eio (not registered: locked-memory
    // limits, for example).
    virtual Result<std::unique_ptr<Memory>> register_memory(void* address, uint64_t size_bytes,
                                                            bool for_windows) = 0;
    virtual Result<std::unique_ptr<Window>> allocate_window() = 0;
    // `has_events`: somebody sleeps until something completes, which takes a descriptor. Errors: enomem, eio.
    virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(uint32_t queue_depth,
                                                                 bool has_events) = 0;
    // Unreliable Connected, with an event descriptor: no reads and atomics; a send or write with an immediate that is longer
    // than the path's MTU is lost as a whole. Errors: enomem, eio, eopnotsupp.
    virtual Result<std::unique_ptr<QueuePair>> create_unreliable_queue_pair(
        uint32_t send_depth, uint32_t receive_depth) {
        (void)send_depth;
        (void)receive_depth;
        return Error::eopnotsupp;
    }
};

// What this machine has.
class Devices {
  public:
    virtual ~Devices() = default;
    // Whether there is any at all. `problem` says in one line why not.
    virtual bool exist(std::string& problem) = 0;
    // The device whose port has this address of the host, as 16 bytes (IPv4: mapped into IPv6). Errors: enodev.
    virtual Result<std::unique_ptr<Device>> open(const uint8_t address[16],
                                                 std::string& problem) = 0;
};

// Those of libibverbs; without it (TIFFIN_RDMA off) an empty set.
Devices& system_devices();
// For tests: another set instead, nullptr: the system's again. Not while something is open.
void use_devices(Devices* devices);
Devices& devices();

}  // namespace tiffin::rdma_blk::verbs
