// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Splitting a frame's payload into transactions and records.
#include "fs/tiffinfs/journal/journal.h"

namespace tiffin::tiffinfs {
namespace {

// Whether a record of this type may have a value of this size.
bool value_fits(RecordType type, uint16_t value_bytes) {
    switch (type) {
        case RecordType::put:
            return value_bytes <= kMaximumValueBytes;
        case RecordType::erase:
            return value_bytes == 0;
        case RecordType::write_extent:
            return value_bytes >= sizeof(ExtentValue) && value_bytes <= kMaximumValueBytes;
        case RecordType::unmap:
            return value_bytes == sizeof(uint64_t);
        case RecordType::erase_range:
            return value_bytes == sizeof(Key);
    }
    return false;
}

}  // namespace

Result<bool> RecordIterator::next(Record& record) {
    size_t offset = offset_;
    size_t transaction_end = transaction_end_;
    uint32_t records_left = records_left_;
    if (records_left == 0) {
        if (offset == payload_.size()) {
            return false;
        }
        TransactionHeader header;
        if (payload_.size() - offset < sizeof(header)) {
            return Error::euclean;
        }
        __builtin_memcpy(&header, payload_.data() + offset, sizeof(header));
        offset += sizeof(header);
        if (header.record_count == 0 || header.payload_bytes > payload_.size() - offset) {
            return Error::euclean;
        }
        transaction_end = offset + header.payload_bytes;
        records_left = header.record_count;
    }

    RecordHeader header;
    if (transaction_end - offset < sizeof(header)) {
        return Error::euclean;
    }
    __builtin_memcpy(&header, payload_.data() + offset, sizeof(header));
    offset += sizeof(header);
    const size_t padded_bytes = (size_t{header.value_bytes} + 3) & ~size_t{3};
    if (padded_bytes > transaction_end - offset || !value_fits(header.type, header.value_bytes)) {
        return Error::euclean;
    }
    --records_left;
    if (records_left == 0 && offset + padded_bytes != transaction_end) {
        return Error::euclean;
    }
    record.type = header.type;
    record.key = header.key;
    record.value = payload_.subspan(offset, header.value_bytes);
    record.ends_transaction = records_left == 0;
    offset_ = offset + padded_bytes;
    transaction_end_ = transaction_end;
    records_left_ = records_left;
    return true;
}

}  // namespace tiffin::tiffinfs
