// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A journal on a device of its own, transactions to put into it, and what is read back.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "fs/tiffinfs/journal/journal.h"
#include "tests/support/crash_device.h"

namespace tiffin::tiffinfs::test {

using tiffin::test::CrashDevice;
using tiffin::test::CrashOutcome;

using Bytes = std::vector<unsigned char>;

struct Transaction {
    Bytes records;
    uint32_t record_count = 0;

    ByteSpan span() const { return ByteSpan(records.data(), records.size()); }
    // With the TransactionHeader, as reservations count it.
    uint32_t size_bytes() const {
        return static_cast<uint32_t>(sizeof(TransactionHeader) + records.size());
    }
};

inline void append_record(Transaction& transaction, RecordType type, Key key, const Bytes& value) {
    const RecordHeader header{type, 0, static_cast<uint16_t>(value.size()), key};
    const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
    Bytes& records = transaction.records;
    records.insert(records.end(), bytes, bytes + sizeof(header));
    records.insert(records.end(), value.begin(), value.end());
    records.resize((records.size() + 3) / 4 * 4);
    ++transaction.record_count;
}

// A transaction of exactly `size_bytes` (TransactionHeader included, a multiple of 4, at least 28)
// that holds `number` in its first key.
inline Transaction make_transaction(uint64_t number, uint32_t size_bytes) {
    Transaction transaction;
    uint32_t left = size_bytes - sizeof(TransactionHeader);
    while (left > 0) {
        uint32_t value_bytes = std::min<uint32_t>(left - sizeof(RecordHeader), kMaximumValueBytes);
        const uint32_t rest = left - sizeof(RecordHeader) - value_bytes;
        if (rest > 0 && rest < sizeof(RecordHeader)) {
            value_bytes -= sizeof(RecordHeader);
        }
        const Bytes value(value_bytes, static_cast<unsigned char>(number * 7 + left));
        append_record(transaction, RecordType::put, make_key(number, Kind::inline_data, left),
                      value);
        left -= sizeof(RecordHeader) + value_bytes;
    }
    return transaction;
}

// What a reader found.
struct Replay {
    std::vector<Bytes> transactions;  // the records of each, as they were appended
    std::vector<FrameHeader> frames;
    Error error{};  // euclean or eio; anything else: the end was reached
    bool ok = false;
    JournalPosition end;
    uint64_t torn_bytes = 0;
};

// Splits a payload into transactions, with the checks of RecordIterator.
inline bool split_payload(ByteSpan payload, std::vector<Bytes>& transactions) {
    RecordIterator records(payload);
    RecordIterator::Record record{};
    Transaction current;
    for (;;) {
        Result<bool> more = records.next(record);
        if (!more.ok()) {
            return false;
        }
        if (!more.value()) {
            return current.record_count == 0;
        }
        append_record(current, record.type, record.key,
                      Bytes(record.value.begin(), record.value.end()));
        if (record.ends_transaction) {
            transactions.push_back(current.records);
            current = Transaction();
        }
    }
}

inline Replay read_journal(vfs::BlockDevice& device, const Superblock& superblock) {
    Replay replay;
    JournalReader reader(device);
    const JournalPosition start{superblock.journal_position, superblock.journal_sequence,
                                superblock.journal_previous_checksum};
    if (Result<void> started = reader.start(superblock, start); !started.ok()) {
        replay.error = started.error();
        return replay;
    }
    for (;;) {
        FrameHeader header;
        Result<ByteSpan> payload = reader.next(header);
        if (!payload.ok()) {
            replay.error = payload.error();
            break;
        }
        if (payload->empty()) {
            replay.ok = true;
            break;
        }
        if (!split_payload(payload.value(), replay.transactions)) {
            replay.error = Error::euclean;
            break;
        }
        replay.frames.push_back(header);
    }
    replay.end = reader.position();
    replay.torn_bytes = reader.torn_bytes();
    return replay;
}

// A device that holds nothing but a journal (after a few blocks that must stay zero), and the
// superblock that would describe it.
class JournalVolume {
  public:
    static constexpr uint64_t kFirstBlock = 4;

    explicit JournalVolume(uint64_t journal_bytes, uint32_t write_unit_bytes = 64,
                           bool volatile_cache = false)
        : JournalVolume(std::make_unique<CrashDevice>(
                            geometry(journal_bytes, write_unit_bytes, volatile_cache)),
                        journal_bytes) {}

    JournalVolume(std::unique_ptr<CrashDevice> device, uint64_t journal_bytes)
        : device_(std::move(device)) {
        superblock.volume_nonce = 0x1234567890abcdef;
        superblock.journal_first_block = kFirstBlock;
        superblock.journal_block_count = journal_bytes / kBlockBytes;
        superblock.incarnation = 1;
        superblock.generation = 1;
        superblock.journal_sequence = 1;
    }

    static vfs::DeviceGeometry geometry(uint64_t journal_bytes, uint32_t write_unit_bytes,
                                        bool volatile_cache) {
        vfs::DeviceGeometry geometry;
        // A block behind the journal, which must stay zero too.
        geometry.size_bytes = kFirstBlock * kBlockBytes + journal_bytes + kBlockBytes;
        geometry.write_unit_bytes = write_unit_bytes;
        geometry.volatile_cache = volatile_cache;
        return geometry;
    }

    CrashDevice& device() { return *device_; }
    uint64_t journal_bytes() const { return superblock.journal_block_count * kBlockBytes; }
    uint64_t byte_on_device(uint64_t offset_in_journal) const {
        return kFirstBlock * kBlockBytes + offset_in_journal;
    }
    JournalPosition start_position() const {
        return {superblock.journal_position, superblock.journal_sequence,
                superblock.journal_previous_checksum};
    }
    void set_start_position(const JournalPosition& position) {
        superblock.journal_position = position.offset_bytes;
        superblock.journal_sequence = position.sequence;
        superblock.journal_previous_checksum = position.previous_checksum;
    }

    // Starts a journal at `position`, as a mount does after replay: with a raised incarnation.
    std::unique_ptr<Journal> start(const JournalPosition& position) {
        auto journal = std::make_unique<Journal>(*device_);
        Result<void> started = journal->start(superblock, position, start_position(),
                                              superblock.incarnation, superblock.generation + 1);
        return started.ok() ? std::move(journal) : nullptr;
    }
    std::unique_ptr<Journal> start() { return start(start_position()); }

    Replay read() { return read_journal(*device_, superblock); }
    Bytes content(uint64_t offset_in_journal, uint64_t size_bytes) {
        Bytes all(device_->geometry().size_bytes);
        EXPECT_TRUE(device_->read(0, all.data(), all.size()).ok());
        const auto first = all.begin() + static_cast<ptrdiff_t>(byte_on_device(offset_in_journal));
        return Bytes(first, first + static_cast<ptrdiff_t>(size_bytes));
    }

    Superblock superblock{};

  private:
    std::unique_ptr<CrashDevice> device_;
};

// Reserves and appends; the ticket.
inline uint64_t append(Journal& journal, const Transaction& transaction) {
    EXPECT_TRUE(journal.try_reserve(transaction.size_bytes()));
    return journal.append(transaction.span(), transaction.record_count, transaction.size_bytes());
}

// Reserves, appends and commits one transaction: a frame of its own when nothing else is pending.
inline bool append_and_commit(Journal& journal, const Transaction& transaction) {
    return journal.commit(append(journal, transaction)).ok();
}

}  // namespace tiffin::tiffinfs::test
