// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory of a server on this host: its memory is mapped here, and an operation is a copy or an
// instruction within submit(), without a system call (but for writes on some processors, unit_copy.h) and without the
// server. docs/remote.md, "shm", says how it is taken away again.
//
// A session on a Unix socket goes with it (a TcpMemory): it opens, keeps and closes the session, flushes, and
// carries out as requests whatever cannot be done here: changes of the control space, what is beyond the
// mapping, what must follow something that is still on its way there, and everything while the server is away. So
// errors have one place, too.
#pragma once

#include <memory>
#include <string>

#include "rdma_blk/transport/one_sided.h"
#include "rdma_blk/transport/open.h"
#include "rdma_blk/transport/shm/direct_gate.h"
#include "rdma_blk/transport/shm/mapped_memory.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {

class ShmMemory final : public RemoteMemory, private OneSidedPath {
  public:
    // See open_remote_memory(). `socket_path`: of the volume. Errors: also enoent, eperm (no such socket, or it
    // may not be used), eopnotsupp (the server does not give its memory to this process).
    static Result<std::unique_ptr<RemoteMemory>> open(const RemoteAddress& address,
                                                      const OpenOptions& options,
                                                      const std::string& socket_path,
                                                      const char* transport_reason,
                                                      ConnectionListener* listener, Holder& holder,
                                                      std::string& problem);
    ~ShmMemory() override;

    const Geometry& geometry() const override { return stream_->geometry(); }
    const Limits& limits() const override { return stream_->limits(); }
    ConnectionInfo connection() const override { return stream_->connection(); }
    Statistics statistics() const override;
    void submit(Operation& first) override;
    void send_gathered() override { stream_->send_gathered(); }
    void wait(Operation& operation) override;
    size_t progress() override { return stream_->progress(); }
    Result<void> add_arena(MutableByteSpan memory) override;  // nothing to register
    Result<void> start_writing(bool force, Holder& holder) override;
    uint64_t change_mark() const override { return stream_->change_mark(); }
    void changes_flushed(uint64_t mark) override { stream_->changes_flushed(mark); }
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override;
    void close() override { stream_->close(); }

  private:
    ShmMemory() = default;

    // ---- OneSidedPath: from the stream's threads, one at a time
    wire::PathTransport transport() const override { return wire::PathTransport::shm; }
    const char* name() const override { return "shm"; }
    Result<void> joined(ByteSpan parameters, ReceivedDescriptors& descriptors, uint64_t data_bytes,
                        uint64_t epoch) override;
    void stop() override { gate_.close(); }
    void release() override;
    void resized(uint64_t data_bytes) override;
    uint64_t change_count() const override { return gate_.change_count(); }

    // ---- An operation. False: it is for the stream, and nothing was done.
    bool execute(Operation& operation);
    bool execute_within(DirectGate::Place& place, Operation& operation);
    bool read(DirectGate::Place& place, const Operation& operation);
    bool write(DirectGate::Place& place, const Operation& operation);
    bool change_word(DirectGate::Place& place, Operation& operation);
    // Whether what was read so far is what nobody has changed: a writer that comes by force has another epoch first.
    bool is_steady() const;
    bool find_length(const Operation& operation, const MappedMemory& memory,
                     uint64_t& length_bytes) const;
    void submit_batch(Operation& first);

    std::unique_ptr<TcpMemory> stream_;
    DirectGate gate_;
    // Changed while the gate is closed only; direct_address() looks at some of it without the gate.
    MappedMemory data_;
    MappedMemory control_;
    bool reads_steadily_ = false;
    // Under which a session was opened that reads steadily; kNoEpoch: it does not.
    static constexpr uint64_t kNoEpoch = UINT64_MAX;
    std::atomic<uint64_t> steady_epoch_{kNoEpoch};
};

}  // namespace tiffin::rdma_blk
