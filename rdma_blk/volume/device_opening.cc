// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening a volume: sessions, leases, the stripe.
#include <algorithm>
#include <cstring>

#include "fs/base/text.h"
#include "rdma_blk/volume/remote_block_device.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {
namespace {

// Memory that a device can reach, for what is read and written while opening.
class Page {
  public:
    Page() : memory_(static_cast<unsigned char*>(host::allocate_pages(kBytes))) {}
    ~Page() { host::release_pages(memory_, kBytes); }
    Page(const Page&) = delete;
    Page& operator=(const Page&) = delete;

    static constexpr size_t kBytes = 4096;
    unsigned char* data() { return memory_; }

  private:
    unsigned char* memory_;
};
static_assert(sizeof(wire::ControlHeader) == Page::kBytes);
static_assert(sizeof(StripeDescription) <= Page::kBytes);

Result<void> access_control(RemoteMemory& memory, OperationKind kind, uint64_t offset_bytes,
                            void* data, size_t size_bytes) {
    vfs::IoVector buffer{data, size_bytes};
    Operation operation;
    operation.kind = kind;
    operation.space = AddressSpace::control;
    operation.offset_bytes = offset_bytes;
    operation.buffers = &buffer;
    operation.buffer_count = 1;
    memory.submit(operation);
    memory.wait(operation);
    if (operation.outcome != Outcome::executed) {
        return operation.error;
    }
    return {};
}

constexpr uint64_t kFirstIncarnation = 1;  // of a volume's content

std::string error_text(Error error) { return "error " + std::to_string(errno_value(error)); }

// Where a server's description lies. Errors: eproto, enospc (there is no room for words).
Result<uint64_t> find_words(RemoteMemory& memory, Page& page) {
    TRY(access_control(memory, OperationKind::read, 0, page.data(), Page::kBytes));
    wire::ControlHeader header;
    std::memcpy(&header, page.data(), sizeof(header));
    const wire::ControlLayout layout =
        TRY(wire::check_control_header(header, memory.geometry().control_bytes));
    if (layout.words_bytes < sizeof(StripeDescription)) {
        return Error::enospc;
    }
    return layout.words_offset;
}

}  // namespace

Result<std::unique_ptr<RemoteBlockDevice>> RemoteBlockDevice::open(
    std::vector<ServerToOpen> servers, const RemoteDeviceOptions& options, std::string& problem) {
    if (servers.empty() || servers.size() > kMaxServers || options.operation_count == 0 ||
        options.request_count == 0 ||
        (options.stripe_bytes != 0 && !is_stripe_size(options.stripe_bytes))) {
        problem = "a volume has 1 to 16 servers, and a stripe from 4K to 1G that is a power of two";
        return Error::einval;
    }
    std::unique_ptr<RemoteBlockDevice> device(new RemoteBlockDevice(options));
    TRY(device->open_servers(servers, problem));
    // Before the leases: one server twice would fence itself off.
    const std::vector<StripeFinding> members = device->list_members();
    TRY(check_members(Span<const StripeFinding>(members.data(), members.size()), problem));
    if (options.write) {
        Holder holder;
        const Result<void> taken = device->take_leases(options.force, holder, problem);
        if (!taken.ok()) {
            if (options.holder != nullptr) {
                *options.holder = holder;
            }
            return taken.error();
        }
    }
    TRY(device->check_stripe(options.write, problem));
    TRY(device->set_geometry(problem));
    if (options.write) {
        device->inherit_unflushed();
    }
    device->geometry_.read_only = !options.write;
    TRY(device->start(problem));
    device->tell_of_opening();
    return device;
}

RemoteBlockDevice::~RemoteBlockDevice() {
    for (auto& server : servers_) {
        if (server->memory != nullptr) {
            server->is_closing.store(true);
            server->memory->close();
        }
    }
    if (worker_.running()) {
        worker_stops_.store(true);
        worker_awake_.store(true);
        worker_wake_.post();
        worker_.join();
    }
    report_connections();  // what the worker may not have got to
    host::release_pages(copies_, copies_bytes_);
}

Result<void> RemoteBlockDevice::open_servers(std::vector<ServerToOpen>& servers,
                                             std::string& problem) {
    for (ServerToOpen& to_open : servers) {
        servers_.push_back(std::make_unique<DeviceServer>(*this));
        DeviceServer& server = *servers_.back();
        server.name = to_open.name;
        Result<std::unique_ptr<RemoteMemory>> memory = to_open.open(server, problem);
        if (!memory.ok()) {
            return memory.error();
        }
        server.memory = std::move(memory.value());
        server.state.store(ConnectionState::ready);
    }
    return {};
}

// What is known of the servers without looking at their memory.
std::vector<StripeFinding> RemoteBlockDevice::list_members() const {
    std::vector<StripeFinding> findings;
    for (const auto& server : servers_) {
        StripeFinding& finding = findings.emplace_back();
        finding.name = server->name.c_str();
        std::memcpy(finding.member.server_uuid, server->memory->geometry().server_uuid, 16);
        std::memcpy(finding.member.volume_uuid, server->memory->geometry().volume_uuid, 16);
    }
    return findings;
}

// In ascending order of UUIDs. What was taken is given back with the sessions when the device is closed;
// for a device that goes on reading, by what start_writing() says to its user: it is closed then.
Result<void> RemoteBlockDevice::take_leases(bool force, Holder& holder, std::string& problem) {
    std::vector<DeviceServer*> ascending;
    ascending.reserve(servers_.size());
    for (auto& server : servers_) {
        ascending.push_back(server.get());
    }
    std::sort(ascending.begin(), ascending.end(), [](DeviceServer* one, DeviceServer* other) {
        return std::memcmp(one->memory->geometry().server_uuid,
                           other->memory->geometry().server_uuid, 16) < 0;
    });
    for (DeviceServer* server : ascending) {
        const Result<void> taken = server->memory->start_writing(force, holder);
        if (taken.ok()) {
            continue;
        }
        if (taken.error() == Error::ebusy) {
            problem = "the volume " + options_.name + " on " + server->name +
                      (holder.reads ? " is being read by " : " is being written by ") +
                      (holder.text[0] != '\0' ? holder.text : "another client") +
                      ": unmount it there, or wait until it has expired; if that is impossible, "
                      "mount.tiffin --force " +
                      (holder.reads ? "ends its session"
                                    : "fences it, and what it has not flushed is lost");
        } else if (taken.error() == Error::erofs) {
            problem = "the volume " + options_.name + " on " + server->name + " is read-only";
        } else {
            problem = "cannot get the right to write the volume " + options_.name + " on " +
                      server->name + " (" + error_text(taken.error()) + ")";
        }
        return taken.error();
    }
    return {};
}

// With the leases. What an earlier writer left unflushed is in the servers' memory and can be read, so that the
// first flush() has to cover it.
void RemoteBlockDevice::inherit_unflushed() {
    for (auto& server : servers_) {
        if (server->needs_flush && server->memory->connection().inherits_unflushed) {
            server->dirty.set_all_dirty();
        }
    }
}

Result<std::vector<StripeFinding>> RemoteBlockDevice::find_stripe(std::string& problem) {
    Page page;
    if (page.data() == nullptr) {
        return Error::enomem;
    }
    std::vector<StripeFinding> findings = list_members();
    for (size_t i = 0; i < findings.size(); ++i) {
        const auto& server = servers_[i];
        RemoteMemory& memory = *server->memory;
        StripeFinding& finding = findings[i];
        const ConnectionInfo connection = memory.connection();
        finding.member.empty_since_incarnation = connection.empty_since_incarnation;
        finding.words_unknown = connection.words_unknown;
        Result<uint64_t> offset_bytes = find_words(memory, page);
        Result<void> found = offset_bytes.ok()
                                 ? access_control(memory, OperationKind::read, offset_bytes.value(),
                                                  page.data(), sizeof(StripeDescription))
                                 : Result<void>(offset_bytes.error());
        if (!found.ok()) {
            problem = found.error() == Error::enospc
                          ? "the volume on " + server->name +
                                " has no room for a description: make it with words"
                          : "cannot read the control space of the volume on " + server->name +
                                " (" + error_text(found.error()) + ")";
            return found.error();
        }
        std::memcpy(&finding.description, page.data(), sizeof(StripeDescription));
    }
    return findings;
}

// To all servers as forming, then as formed; each step only when the one before is complete. One that is formed stays as it is:
// until the others are, it is all that tells the layout.
Result<void> RemoteBlockDevice::write_stripe(const std::vector<StripeFinding>& findings,
                                             std::string& problem) {
    Page page;
    if (page.data() == nullptr) {
        return Error::enomem;
    }
    const Span<const StripeFinding> all(findings.data(), findings.size());
    for (const StripeState step : {StripeState::forming, StripeState::formed}) {
        for (uint32_t i = 0; i < servers_.size(); ++i) {
            if (is_formed(findings[i].description)) {
                continue;
            }
            RemoteMemory& memory = *servers_[i]->memory;
            const uint64_t offset_bytes = TRY(find_words(memory, page));
            StripeDescription description;
            make_stripe_description(all, i, stripe_.stripe_bytes(), description);
            std::memcpy(page.data(), &description, sizeof(description));
            uint64_t at = 0;
            size_t length_bytes = sizeof(description);
            if (step == StripeState::formed) {
                const auto state = static_cast<uint64_t>(step);
                at = offsetof(StripeDescription, state);
                length_bytes = sizeof(state);
                std::memcpy(page.data(), &state, sizeof(state));
            }
            const Result<void> written = access_control(
                memory, OperationKind::write, offset_bytes + at, page.data(), length_bytes);
            if (!written.ok()) {
                problem = "cannot write the description of the volume on " + servers_[i]->name +
                          " (" + error_text(written.error()) + ")";
                return written.error();
            }
        }
    }
    return {};
}

// As durable as the content will be, and before there is any.
Result<void> RemoteBlockDevice::flush_stripe(std::string& problem) {
    for (auto& server : servers_) {
        if (server->memory->geometry().durability != Durability::power) {
            continue;
        }
        Operation flush;
        flush.kind = OperationKind::flush;
        flush.space = AddressSpace::control;
        server->memory->submit(flush);
        server->memory->wait(flush);
        if (flush.outcome != Outcome::executed) {
            problem = "the server " + server->name +
                      " cannot store the description of the volume (" + error_text(flush.error) +
                      "): see its log";
            return flush.error;
        }
    }
    return {};
}

Result<void> RemoteBlockDevice::check_stripe(bool may_write, std::string& problem) {
    Result<std::vector<StripeFinding>> findings = find_stripe(problem);
    if (!findings.ok()) {
        return findings.error();
    }
    const Span<const StripeFinding> all(findings->data(), findings->size());
    const Result<StripeVerdict> verdict =
        judge_stripe(all, options_.stripe_bytes, may_write, problem);
    if (!verdict.ok()) {
        return verdict.error();
    }
    stripe_ = StripeMap(static_cast<uint32_t>(servers_.size()), verdict.value().stripe_bytes);
    if (!may_write) {
        return {};
    }
    if (!verdict.value().complete) {
        TRY(write_stripe(findings.value(), problem));
    }
    // Of a complete one, too: the flush of an earlier opening may have been cut off. Costs no write then.
    return flush_stripe(problem);
}

Result<void> RemoteBlockDevice::set_geometry(std::string& problem) {
    uint64_t smallest_bytes = UINT64_MAX;
    uint32_t unit_bytes = 64;
    uint64_t transfer_bytes = UINT64_MAX;
    size_t vector_count = kPieceVectors;
    for (auto& server : servers_) {
        const Geometry& geometry = server->memory->geometry();
        const Limits& limits = server->memory->limits();
        smallest_bytes = std::min(smallest_bytes, geometry.data_bytes);
        unit_bytes = std::max(unit_bytes, geometry.write_unit_bytes);
        transfer_bytes = std::min<uint64_t>(transfer_bytes, limits.transfer_bytes);
        vector_count = std::min<size_t>(vector_count, limits.buffer_count);
        server->needs_flush = geometry.durability == Durability::power;
        needs_flush_ = needs_flush_ || server->needs_flush;
        if (server->needs_flush) {
            TRY(server->dirty.create(geometry.data_bytes));
        }
    }
    piece_limits_ = {transfer_bytes / unit_bytes * unit_bytes, vector_count, unit_bytes};
    geometry_.size_bytes = stripe_.size_bytes(smallest_bytes) / unit_bytes * unit_bytes;
    geometry_.write_unit_bytes = unit_bytes;
    geometry_.volatile_cache = needs_flush_;
    if (unit_bytes > kMaxWriteUnitBytes || piece_limits_.transfer_bytes == 0 || vector_count == 0 ||
        geometry_.size_bytes == 0) {
        problem = "the servers of the volume " + options_.name +
                  " take no operations of a size that a file system needs";
        return Error::eproto;
    }
    return {};
}

Result<void> RemoteBlockDevice::start(std::string& problem) {
    copies_bytes_ = uint64_t{options_.operation_count} * kMaxWriteUnitBytes;
    copies_ = static_cast<unsigned char*>(host::allocate_pages(copies_bytes_));
    const Result<void> ready = [&]() -> Result<void> {
        if (copies_ == nullptr) {
            return Error::enomem;
        }
        TRY(pieces_.create(options_.operation_count));
        TRY(transfers_.create(options_.request_count));
        unsigned char* copy = copies_;
        pieces_.for_each([&](Piece& piece) {
            piece.copy = copy;
            copy += kMaxWriteUnitBytes;
        });
        return worker_.start(
            "tiffin-volume",
            [](void* device) { static_cast<RemoteBlockDevice*>(device)->run_worker(); }, this);
    }();
    if (!ready.ok()) {
        problem = "not enough memory for the volume " + options_.name;
        return ready.error();
    }
    wake_worker();  // a connection may have changed meanwhile
    return {};
}

// What whoever opened it should know: that others can read along, and why there is nothing.
void RemoteBlockDevice::tell_of_opening() {
    for (const ServerStatus& server : status()) {
        if (server.is_in_clear) {
            log_line(host::LogLevel::info, "volume ", options_.name.c_str(), ", server ",
                     server.name.c_str(), ": data travel in the clear (",
                     server.connection.transport_name, "); encrypt=yes in the address seals them");
        }
    }
    // Of several servers the stripe's description has said so.
    Page page;
    if (servers_.size() > 1 || page.data() == nullptr ||
        servers_[0]->memory->connection().empty_since_incarnation <= kFirstIncarnation) {
        return;
    }
    const auto is_empty = [&](uint64_t offset_bytes) {
        const vfs::IoVector buffer{page.data(), Page::kBytes};
        const auto* bytes = static_cast<const unsigned char*>(page.data());
        return read(offset_bytes, &buffer, 1).ok() &&
               std::all_of(bytes, bytes + Page::kBytes,
                           [](unsigned char byte) { return byte == 0; });
    };
    // A file system that was just made has the second of its superblocks alone.
    if (geometry_.size_bytes >= 2 * Page::kBytes && is_empty(0) && is_empty(Page::kBytes)) {
        has_lost_content_ = true;
        log_line(
            host::LogLevel::warning, "volume ", options_.name.c_str(), ", server ",
            servers_[0]->name.c_str(),
            ": the server has lost its content, all of it: its memory was lost, and it has no disk "
            "behind it. mkfs.tiffin makes a new file system there");
    }
}

Result<void> RemoteBlockDevice::start_writing() {
    if (!geometry_.read_only) {
        return {};
    }
    std::string problem;
    Holder holder;
    Result<void> result = take_leases(false, holder, problem);
    if (result.ok()) {
        result = check_stripe(true, problem);
    }
    if (!result.ok()) {
        log_line(host::LogLevel::error, problem.c_str());
        return result;
    }
    inherit_unflushed();
    geometry_.read_only = false;
    for (vfs::DeviceGeometry& geometry : geometries_) {
        geometry.read_only = false;
    }
    return {};
}

std::vector<ServerStatus> RemoteBlockDevice::status() const {
    std::vector<ServerStatus> all;
    for (const auto& server : servers_) {
        ServerStatus status;
        status.name = server->name;
        status.connection = server->memory->connection();
        status.statistics = server->memory->statistics();
        status.needs_flush = server->needs_flush;
        status.has_lost_content = has_lost_content_;
        status.is_in_clear =
            !options_.encrypt && std::strcmp(status.connection.transport_name, "shm") != 0;
        status.dirty_bytes = server->needs_flush ? server->dirty.dirty_bytes() : 0;
        all.push_back(status);
    }
    return all;
}

}  // namespace tiffin::rdma_blk
