// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/parity_store.h"

#include <algorithm>
#include <new>

namespace tiffin::rdma_blk::sdr {

Result<void> ParityStore::allocate(uint32_t groups, uint32_t group_chunks, uint64_t chunk_bytes,
                                   bool without_bytes) {
    const uint64_t group_bytes = group_chunks * chunk_bytes;
    if (!without_bytes && group_bytes > 0) {
        groups =
            static_cast<uint32_t>(std::min<uint64_t>(groups, kMaxParityMemoryBytes / group_bytes));
    }
    if (groups == 0 || group_chunks == 0) {
        return {};
    }
    group_chunks_ = group_chunks;
    groups_.reset(new (std::nothrow) Group[groups]);
    if (groups_ == nullptr) {
        return Error::enomem;
    }
    if (!without_bytes) {
        bytes_.reset(new (std::nothrow) unsigned char[groups * group_bytes]);
        if (bytes_ == nullptr) {
            return Error::enomem;
        }
    }
    for (uint32_t index = 0; index < groups; index++) {
        groups_[index].next = index + 1 < groups ? index + 1 : kNone;
        groups_[index].bytes = without_bytes ? nullptr : bytes_.get() + index * group_bytes;
    }
    free_ = 0;
    return {};
}

ParityStore::Group* ParityStore::find(uint32_t list, uint32_t group) {
    for (uint32_t index = list; index != kNone; index = groups_[index].next) {
        if (groups_[index].group == group) {
            return &groups_[index];
        }
    }
    return nullptr;
}

ParityStore::Group* ParityStore::add(uint32_t& list, uint32_t group) {
    if (free_ == kNone) {
        return nullptr;
    }
    const uint32_t index = free_;
    Group& added = groups_[index];
    free_ = added.next;
    added.group = group;
    added.next = list;
    std::fill(std::begin(added.packets), std::end(added.packets), 0);
    list = index;
    return &added;
}

void ParityStore::remove(uint32_t& list, uint32_t group) {
    for (uint32_t* link = &list; *link != kNone; link = &groups_[*link].next) {
        const uint32_t index = *link;
        if (groups_[index].group == group) {
            *link = groups_[index].next;
            groups_[index].next = free_;
            free_ = index;
            return;
        }
    }
}

void ParityStore::remove_all(uint32_t& list) {
    while (list != kNone) {
        const uint32_t index = list;
        list = groups_[index].next;
        groups_[index].next = free_;
        free_ = index;
    }
}

}  // namespace tiffin::rdma_blk::sdr
