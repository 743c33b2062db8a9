// SPDX-License-Identifier: MIT OR GPL-2.0-only
// RecordIterator against payloads that are right, wrong in one place, and garbage.
#include <gtest/gtest.h>

#include <cstring>

#include "fs/tiffinfs/journal/journal.h"
#include "tests/unit/tiffinfs/journal_fixture.h"

namespace tiffin::tiffinfs::test {
namespace {

Bytes payload_of(const std::vector<Transaction>& transactions) {
    Bytes payload;
    for (const Transaction& transaction : transactions) {
        const TransactionHeader header{static_cast<uint32_t>(transaction.records.size()),
                                       transaction.record_count};
        const auto* bytes = reinterpret_cast<const unsigned char*>(&header);
        payload.insert(payload.end(), bytes, bytes + sizeof(header));
        payload.insert(payload.end(), transaction.records.begin(), transaction.records.end());
    }
    return payload;
}

// How many records come out before the end; -1 when the payload is refused.
int count_records(const Bytes& payload) {
    // A copy of the exact size, so that a sanitizer sees the smallest overrun.
    auto exact = std::make_unique<unsigned char[]>(payload.size());
    std::copy(payload.begin(), payload.end(), exact.get());
    RecordIterator records(ByteSpan(exact.get(), payload.size()));
    RecordIterator::Record record{};
    uint64_t sum = 0;
    for (int count = 0;; ++count) {
        Result<bool> more = records.next(record);
        if (!more.ok()) {
            EXPECT_EQ(more.error(), Error::euclean);
            // It stays refused.
            EXPECT_FALSE(records.next(record).ok());
            return -1;
        }
        if (!more.value()) {
            EXPECT_FALSE(records.next(record).value_or(true));
            return count;
        }
        for (const unsigned char byte : record.value) {
            sum += byte;
        }
        EXPECT_LE(record.value.size(), payload.size());
        EXPECT_LE(sum, payload.size() * 255);
    }
}

// One transaction of one record.
Bytes single(RecordType type, size_t value_bytes) {
    Transaction transaction;
    append_record(transaction, type, make_key(5, Kind::extent, 0), Bytes(value_bytes, 1));
    return payload_of({transaction});
}

TEST(RecordIterator, AnEmptyPayloadHasNoRecords) { EXPECT_EQ(count_records({}), 0); }

TEST(RecordIterator, GivesAllRecordsInOrder) {
    const Bytes end_key(sizeof(Key), 0xee);
    Transaction first;
    append_record(first, RecordType::put, make_key(7, Kind::inode, 0), Bytes(128, 1));
    append_record(first, RecordType::erase, make_key(7, Kind::entry, 99), {});
    Transaction second;
    append_record(second, RecordType::put, make_key(8, Kind::symlink, 0), Bytes(5, 'x'));
    append_record(second, RecordType::erase_range, make_key(8, Kind::xattr, 0), end_key);
    append_record(second, RecordType::unmap, make_key(8, Kind::extent, 4), Bytes(8, 2));
    const Bytes payload = payload_of({first, second});

    RecordIterator records(ByteSpan(payload.data(), payload.size()));
    RecordIterator::Record record{};
    const auto expect = [&](RecordType type, Key key, const Bytes& value, bool ends) {
        Result<bool> more = records.next(record);
        ASSERT_TRUE(more.ok() && more.value());
        EXPECT_EQ(record.type, type);
        EXPECT_EQ(record.key, key);
        EXPECT_EQ(Bytes(record.value.begin(), record.value.end()), value);
        EXPECT_EQ(record.ends_transaction, ends);
    };
    expect(RecordType::put, make_key(7, Kind::inode, 0), Bytes(128, 1), false);
    expect(RecordType::erase, make_key(7, Kind::entry, 99), {}, true);
    expect(RecordType::put, make_key(8, Kind::symlink, 0), Bytes(5, 'x'), false);
    expect(RecordType::erase_range, make_key(8, Kind::xattr, 0), end_key, false);
    expect(RecordType::unmap, make_key(8, Kind::extent, 4), Bytes(8, 2), true);
    EXPECT_FALSE(records.next(record).value_or(true));
}

TEST(RecordIterator, ChecksTheSizesOfValues) {
    EXPECT_EQ(count_records(single(RecordType::put, 0)), 1);
    EXPECT_EQ(count_records(single(RecordType::put, kMaximumValueBytes)), 1);
    EXPECT_EQ(count_records(single(RecordType::put, kMaximumValueBytes + 1)), -1);
    EXPECT_EQ(count_records(single(RecordType::erase, 0)), 1);
    EXPECT_EQ(count_records(single(RecordType::erase, 4)), -1);
    EXPECT_EQ(count_records(single(RecordType::write_extent, sizeof(ExtentValue))), 1);
    EXPECT_EQ(count_records(single(RecordType::write_extent, sizeof(ExtentValue) - 1)), -1);
    EXPECT_EQ(count_records(single(RecordType::unmap, 8)), 1);
    EXPECT_EQ(count_records(single(RecordType::unmap, 12)), -1);
    EXPECT_EQ(count_records(single(RecordType::erase_range, 16)), 1);
    EXPECT_EQ(count_records(single(RecordType::erase_range, 8)), -1);
    EXPECT_EQ(count_records(single(static_cast<RecordType>(0), 0)), -1);
    EXPECT_EQ(count_records(single(static_cast<RecordType>(6), 0)), -1);
    EXPECT_EQ(count_records(single(static_cast<RecordType>(255), 8)), -1);
}

TEST(RecordIterator, RefusesWrongHeaders) {
    const Bytes good = payload_of({make_transaction(1, 200), make_transaction(2, 100)});
    ASSERT_EQ(count_records(good), 2);
    const auto with = [&](size_t offset, uint32_t number) {
        Bytes changed = good;
        memcpy(changed.data() + offset, &number, sizeof(number));
        return count_records(changed);
    };
    const size_t payload_bytes = offsetof(TransactionHeader, payload_bytes);
    const size_t record_count = offsetof(TransactionHeader, record_count);
    EXPECT_EQ(with(payload_bytes, 0), -1);
    EXPECT_EQ(with(payload_bytes, 188), -1);
    EXPECT_EQ(with(payload_bytes, 196), -1);
    EXPECT_EQ(with(payload_bytes, 0xffffffff), -1);
    EXPECT_EQ(with(record_count, 0), -1);
    EXPECT_EQ(with(record_count, 2), -1);
    EXPECT_EQ(with(record_count, 0xffffffff), -1);
    // The first record's value reaches beyond its transaction.
    EXPECT_EQ(with(sizeof(TransactionHeader), 1U | (176U << 16)), -1);
    EXPECT_EQ(with(sizeof(TransactionHeader), 1U | (168U << 16)), -1);
}

TEST(RecordIterator, RefusesEveryTruncation) {
    const Bytes good = payload_of({make_transaction(1, 200), make_transaction(2, 100)});
    for (size_t size = 1; size < good.size(); ++size) {
        const int count = count_records(Bytes(good.begin(), good.begin() + size));
        EXPECT_EQ(count, size == 200 ? 1 : -1) << size << " bytes";
    }
}

TEST(RecordIterator, SurvivesAnyBytes) {
    std::mt19937_64 random(1);
    const Bytes good =
        payload_of({make_transaction(1, 300), make_transaction(2, 3000), make_transaction(3, 28)});
    for (int round = 0; round < 20000; ++round) {
        Bytes changed = good;
        for (uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
            changed[random() % changed.size()] = static_cast<unsigned char>(random());
        }
        count_records(changed);
    }
    for (int round = 0; round < 20000; ++round) {
        Bytes garbage(random() % 200);
        for (unsigned char& byte : garbage) {
            // Small numbers make headers that are almost right.
            byte = static_cast<unsigned char>(random() % 4 == 0 ? random() : random() % 2);
        }
        count_records(garbage);
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs::test
