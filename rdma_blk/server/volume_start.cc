// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How a volume comes up, with the memory that it had or without; and what is done with it as a whole.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "rdma_blk/server/printable.h"
#include "rdma_blk/server/volume.h"
#include "rdma_blk/server/whole_units.h"
#include "rdma_blk/wire/hexadecimal.h"
#include "rdma_blk/wire/store_release.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kMemoryWriteUnitBytes = 64;

}  // namespace

Volume::Volume(const StateDirectory& directory, const VolumeState& state,
               const VolumeOptions& options)
    : directory_(directory), name_(state.name), key_(state.key), options_(options), state_(state) {}

Volume::~Volume() = default;

Result<std::unique_ptr<Volume>> Volume::start(const StateDirectory& directory,
                                              const VolumeState& state, bool is_new,
                                              KeptMemory kept, const VolumeOptions& options,
                                              const unsigned char server_uuid[16],
                                              BackingStore* backing, Flusher* flusher,
                                              uint64_t now_ns) {
    if (!is_volume_name(state.name) || state.data_bytes == 0 ||
        state.data_bytes % wire::kControlPageBytes != 0 ||
        state.data_bytes > wire::kMaxSpaceBytes) {
        return Error::einval;
    }
    std::unique_ptr<Volume> volume(new Volume(directory, state, options));
    volume->flusher_ = flusher;
    TRY(volume->bring_up(std::move(kept), is_new, server_uuid, backing, now_ns));
    return volume;
}

Result<void> Volume::bring_up(KeptMemory kept, bool is_new, const unsigned char server_uuid[16],
                              BackingStore* backing, uint64_t now_ns) {
    MutexLock lock(mutex_);
    was_memory_kept_ = TRY(adopt_memory(kept));
    if (was_memory_kept_ && std::exchange(state_.is_flushed, false)) {
        TRY(directory_.save(state_));
    }
    if (!was_memory_kept_) {
        TRY(make_memory(is_new, backing));
    }
    write_header(server_uuid,
                 backing != nullptr ? backing->write_unit_bytes() : kMemoryWriteUnitBytes,
                 backing != nullptr);
    content_incarnation_.store(state_.content_incarnation);
    heartbeats_.resize(layout_.session_count);
    return was_memory_kept_ ? recover_sessions(now_ns) : Result<void>();
}

// What an earlier process of this server had. False: nothing, or nothing that can be used, which is logged.
Result<bool> Volume::adopt_memory(KeptMemory& kept) {
    if (!kept.data.valid() || !kept.control.valid()) {
        return false;
    }
    wire::ControlHeader header{};
    if (pread(kept.control.get(), &header, sizeof(header), 0) !=
        static_cast<ssize_t>(sizeof(header))) {
        return Error::eio;
    }
    // Left by another version of this program, which can still make something of it.
    if (header.magic == wire::kControlMagic && header.version != wire::kControlVersion) {
        host::log(host::LogLevel::error,
                  ("volume " + name_ +
                   ": its kept memory is of another version, which can serve it: install that one "
                   "again, and send SIGUSR2; a stop of tiffind loses what is not in the backing")
                      .c_str());
        return Error::eproto;
    }
    // A process that ended while it changed the header (resize()) left a checksum that is wrong: magic, version and
    // what the layout is computed from say enough. write_header() seals it again.
    wire::seal_control_header(header);
    const auto layout = wire::check_control_header(header, header.control_bytes);
    if (!layout.ok()) {
        host::log(host::LogLevel::error,
                  ("volume " + name_ +
                   ": its kept memory has no header that makes sense, and is given up: what was "
                   "not flushed to a backing is lost")
                      .c_str());
        return false;
    }
    if (std::memcmp(header.volume_uuid, state_.uuid, 16) != 0) {
        return Error::euclean;
    }
    layout_ = layout.value();
    data_ = TRY(MemoryRegion::adopt(std::move(kept.data), state_.data_bytes, options_.memory));
    control_ = TRY(MemoryRegion::adopt(std::move(kept.control), layout_.control_bytes, {}));
    memory_ = {data_->data(), control_->data()};
    return true;
}

Result<void> Volume::make_memory(bool is_new, BackingStore* backing) {
    // As many log entries as slots: one for each operation that can be on its way.
    layout_ = TRY(wire::make_control_layout(options_.session_count, options_.slot_count,
                                            options_.slot_count, state_.words_bytes));
    data_ =
        TRY(MemoryRegion::create("tiffind:" + name_ + ":data", state_.data_bytes, options_.memory));
    control_ =
        TRY(MemoryRegion::create("tiffind:" + name_ + ":control", layout_.control_bytes, {}));
    memory_ = {data_->data(), control_->data()};
    if (backing != nullptr) {  // of a new volume, too: its content is what the file or disk has
        TRY(backing->read(memory_.data, 0, state_.data_bytes));
    }
    lease().is_flushed = 1;
    if (backing != nullptr && !state_.words.empty()) {
        std::memcpy(memory_.control + layout_.words_offset, state_.words.data(),
                    state_.words.size());
    }
    if (!is_new && !state_.is_flushed) {
        state_.content_incarnation++;
        if (backing == nullptr) {
            state_.empty_since_incarnation = state_.content_incarnation;
            state_.words_are_known = true;  // they are as empty as the rest
        }
    }
    // Of a new volume, too: once it has all that it needs.
    return directory_.save(state_);
}

// The fixed fields may have changed since (a larger volume); the counters of a new one start here.
void Volume::write_header(const unsigned char server_uuid[16], uint32_t write_unit_bytes,
                          bool is_backed) {
    header_ = reinterpret_cast<wire::ControlHeader*>(memory_.control);
    wire::ControlHeader header{};
    std::memcpy(&header, header_, sizeof(header));
    header.magic = wire::kControlMagic;
    header.version = wire::kControlVersion;
    std::memcpy(header.server_uuid, server_uuid, 16);
    std::memcpy(header.volume_uuid, state_.uuid, 16);
    header.data_bytes = state_.data_bytes;
    header.control_bytes = layout_.control_bytes;
    header.words_offset = layout_.words_offset;
    header.words_bytes = layout_.words_bytes;
    header.sessions_offset = layout_.sessions_offset;
    header.session_count = layout_.session_count;
    header.session_stride_bytes = layout_.session_stride_bytes;
    header.slot_count = layout_.slot_count;
    header.log_entry_count = layout_.log_entry_count;
    header.client_offset = layout_.client_offset;
    header.write_unit_bytes = write_unit_bytes;
    header.durability = static_cast<uint8_t>(is_backed ? Durability::power : Durability::process);
    header.epoch = state_.epoch;
    header.content_incarnation = state_.content_incarnation;
    header.empty_since_incarnation = state_.empty_since_incarnation;
    header.server_start_count++;
    wire::seal_control_header(header);
    std::memcpy(header_, &header, sizeof(header));
}

Result<Volume::SessionPointer> Volume::make_session(uint32_t index, uint64_t session_id,
                                                    const unsigned char client_uuid[16]) {
    VolumeSession::Place place;
    place.session_id = session_id;
    std::memcpy(place.client_uuid, client_uuid, 16);
    place.index = index;
    place.memory = memory_;
    place.record = record_at(index);
    store_release(place.record->unit.state, uint32_t{0});
    place.record->unit.server_start_count = header_->server_start_count;
    place.entries = Span<wire::SlotEntry>(
        reinterpret_cast<wire::SlotEntry*>(reinterpret_cast<unsigned char*>(place.record) +
                                           sizeof(wire::SessionRecord)),
        layout_.slot_count);
    place.flusher = flusher_;
    place.content_incarnation = &content_incarnation_;
    place.counters = &counters_;
    place.rc_leftovers = &rc_leftovers_;
    return VolumeSession::create(place);
}

Result<void> Volume::recover_sessions(uint64_t now_ns) {
    // A grant that was not finished: its epoch is durable, nobody has it, and the holder before it must not
    // go on under a number that is no more.
    const bool has_holder = lease().epoch == state_.epoch && lease().epoch != 0;
    if (!has_holder) {
        clear_lease();
    }
    for (uint32_t index = 0; index < layout_.session_count; index++) {
        wire::SessionRecord& record = *record_at(index);
        if (record.state == static_cast<uint32_t>(wire::SessionState::free)) {
            // One whose opening or closing was not finished has left traces at most.
            std::memset(static_cast<void*>(&record), 0, layout_.client_offset);
            continue;
        }
        if (record.unit.server_start_count + 1 == header_->server_start_count) {
            finish_unit(record.unit, MutableByteSpan(memory_.data, state_.data_bytes),
                        MutableByteSpan(memory_.control, layout_.control_bytes));
        }
        const SessionPointer session =
            TRY(make_session(index, record.session_id, record.client_uuid));
        session->recover();
        session->set_holder_text(printable(record.holder_text, wire::kHolderTextBytes).c_str());
        session->heard(now_ns);
        TRY(find_process_again(*session));
        sessions_[record.session_id] = session;
        update_access(*session);
        const bool is_fenced = record.state == static_cast<uint32_t>(wire::SessionState::fenced) ||
                               (record.epoch != 0 && record.epoch != state_.epoch);
        if (is_fenced) {
            session->fence(wire::Notice{});
            store_release(record.state, static_cast<uint32_t>(wire::SessionState::fenced));
        }
    }
    return {};
}

VolumeState Volume::state_with_words() const {
    const unsigned char* words = memory_.control + layout_.words_offset;
    VolumeState next = state_;
    next.words.assign(words, words + wire::kDurableWordsBytes);
    next.words_are_known = true;
    return next;
}

Result<void> Volume::save_words() {
    MutexLock lock(mutex_);
    const VolumeState next = state_with_words();
    if (state_.words_are_known && next.words == state_.words) {
        return {};
    }
    TRY(directory_.save(next));
    state_ = next;
    return {};
}

// ---- The volume as a whole -----------------------------------------------------------------------------

Result<void> Volume::resize(uint64_t data_bytes, BackingStore* backing, uint64_t present_bytes) {
    uint64_t old_bytes = 0;
    {
        MutexLock lock(mutex_);
        old_bytes = state_.data_bytes;
        if (data_bytes < old_bytes || data_bytes % wire::kControlPageBytes != 0 ||
            data_bytes > wire::kMaxSpaceBytes) {
            return Error::einval;
        }
    }
    // Without the lock, which sessions, leases and ticks need: it takes a minute for 100 GiB.
    TRY(data_->grow(data_bytes));
    const Result<void> taken = take_growth(old_bytes, data_bytes, backing, present_bytes);
    if (!taken.ok()) {
        data_->undo_growth(old_bytes);
    }
    return taken;
}

Result<void> Volume::take_growth(uint64_t old_bytes, uint64_t data_bytes, BackingStore* backing,
                                 uint64_t present_bytes) {
    // Its content becomes the volume's, as when that was made: otherwise a flush of all would put zeros there. It takes as long
    // as the disk does, and nobody else has this part yet.
    if (const uint64_t end = std::min(data_bytes, present_bytes);
        backing != nullptr && end > old_bytes) {
        TRY(backing->read(memory_.data, old_bytes, end));
    }
    MutexLock lock(mutex_);
    VolumeState next = state_;
    next.data_bytes = data_bytes;
    TRY(directory_.save(next));
    state_.data_bytes = data_bytes;
    header_->data_bytes = data_bytes;
    wire::seal_control_header(*header_);
    wire::Notice notice{};
    notice.epoch = state_.epoch;
    notice.data_bytes = data_bytes;
    notice.reason = static_cast<uint8_t>(wire::NoticeReason::resized);
    for (const auto& [id, session] : sessions_) {
        update_access(*session);
        session->notify(notice);
    }
    return {};
}

void Volume::stop() {
    MutexLock lock(mutex_);
    stopping_ = true;
    wire::Notice notice{};
    notice.epoch = state_.epoch;
    notice.data_bytes = state_.data_bytes;
    notice.reason = static_cast<uint8_t>(wire::NoticeReason::stopping);
    for (const auto& [id, session] : sessions_) {
        session->notify(notice);
    }
}

bool Volume::may_be_changed_by_processes() const {
    MutexLock lock(mutex_);
    return std::any_of(sessions_.begin(), sessions_.end(),
                       [](const auto& each) { return each.second->may_change_memory(); });
}

bool Volume::needs_last_flush() const {
    MutexLock lock(mutex_);
    return may_be_unflushed();
}

Result<void> Volume::note_last_flush() {
    MutexLock lock(mutex_);
    VolumeState next = state_with_words();
    next.is_flushed = true;
    TRY(directory_.save(next));
    state_ = next;
    return {};
}

// Who has a connection, and a writer that has none now and may come back.
std::string Volume::users(uint64_t now_ns) const {
    const SessionPointer holder = find_holder();
    std::string text;
    for (const auto& [id, session] : sessions_) {
        const bool is_holder = session == holder;
        if (session->is_fenced() ||
            (!session->has_paths() && !(is_holder && may_come_back(*session, now_ns)))) {
            continue;
        }
        const std::string name = is_holder ? printable(lease().holder_text, wire::kHolderTextBytes)
                                           : session->holder_text();
        text += text.empty() ? "" : "; ";
        text += name.empty() ? "a client without a name" : name;
        text += is_holder ? " (writes)" : " (reads)";
    }
    return text;
}

std::string Volume::end_for_good(bool force, uint64_t now_ns) {
    MutexLock lock(mutex_);
    if (!force) {
        std::string present = users(now_ns);
        if (!present.empty()) {
            return present;
        }
    }
    stopping_ = true;
    wire::Notice notice{};
    notice.epoch = state_.epoch;
    notice.data_bytes = state_.data_bytes;
    notice.reason = static_cast<uint8_t>(wire::NoticeReason::deleted);
    for (const auto& [id, session] : sessions_) {
        session->fence(notice);
    }
    return {};
}

void Volume::tick(uint64_t now_ns) {
    MutexLock lock(mutex_);
    forgive_own_pause(now_ns);
    ticked_ns_ = now_ns;
    __atomic_fetch_add(&header_->server_heartbeat, 1, __ATOMIC_RELEASE);
    for (const auto& [id, session] : sessions_) {
        const uint32_t index = session->place().index;
        const auto* client = reinterpret_cast<const wire::ClientRecord*>(
            memory_.control + layout_.session_offset(index) + layout_.client_offset);
        const uint64_t heartbeat = __atomic_load_n(&client->heartbeat, __ATOMIC_ACQUIRE);
        if (heartbeat != heartbeats_[index]) {
            heartbeats_[index] = heartbeat;
            session->heard(now_ns);
        }
    }
}

VolumeInfo Volume::info(uint64_t now_ns) const {
    MutexLock lock(mutex_);
    VolumeInfo info;
    info.name = name_;
    info.uuid = to_hexadecimal(ByteSpan(state_.uuid));
    info.data_bytes = state_.data_bytes;
    info.memory_bytes = memory_bytes();
    info.words_bytes = state_.words_bytes;
    info.backing = state_.backing;
    info.epoch = state_.epoch;
    info.content_incarnation = state_.content_incarnation;
    info.empty_since_incarnation = state_.empty_since_incarnation;
    info.session_count = sessions_.size();
    for (const auto& [id, session] : sessions_) {
        info.connected_session_count += session->has_paths() ? 1 : 0;
    }
    if (const SessionPointer holder = find_holder()) {
        info.holder = lease().holder_text;
        const uint64_t heard_ns = holder->last_heard_ns();
        info.holder_silent_ms = now_ns > heard_ns ? (now_ns - heard_ns) / 1'000'000 : 0;
    }
    info.has_huge_pages = data_->has_huge_pages();
    info.is_locked = data_->is_locked();
    return info;
}

std::vector<SessionInfo> Volume::sessions(uint64_t now_ns) const {
    MutexLock lock(mutex_);
    const SessionPointer holder = find_holder();
    std::vector<SessionInfo> all;
    for (const auto& [id, session] : sessions_) {
        SessionInfo info;
        info.writes = session == holder;
        info.name = info.writes ? printable(lease().holder_text, wire::kHolderTextBytes)
                                : session->holder_text();
        info.is_fenced = session->is_fenced();
        info.path_count = session->path_count();
        info.silent_ms = session->silence_ns(now_ns) / 1'000'000;
        all.push_back(std::move(info));
    }
    return all;
}

}  // namespace tiffin::rdma_blk
