// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/attributes/xattr.h"

#include "fs/base/siphash.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kSlots = 256;
constexpr uint32_t kSlotShift = 8;   // below it: the chunk
constexpr uint32_t kHashShift = 16;  // below it: slot and chunk
constexpr uint64_t kHashMask = (uint64_t{1} << (kKeyOffsetBits - kHashShift)) - 1;

constexpr size_t minimum(size_t a, size_t b) { return a < b ? a : b; }

ByteSpan bytes_of(vfs::Name name) {
    return ByteSpan(reinterpret_cast<const unsigned char*>(name.data), name.size_bytes);
}

bool has_prefix(vfs::Name name, vfs::Name prefix) {
    return name.size_bytes >= prefix.size_bytes &&
           vfs::Name(name.data, prefix.size_bytes) == prefix;
}

// Bytes of the value that chunk 0 has room for.
constexpr size_t first_chunk_room(size_t name_bytes) {
    return kXattrChunkBytes - sizeof(XattrValue) - name_bytes;
}

constexpr uint32_t chunk_count(size_t name_bytes, size_t value_bytes) {
    const size_t room = first_chunk_room(name_bytes);
    return value_bytes <= room
               ? 1
               : 1 + static_cast<uint32_t>((value_bytes - room + kXattrChunkBytes - 1) /
                                           kXattrChunkBytes);
}
static_assert(chunk_count(vfs::kXattrNameMaxBytes, vfs::kXattrValueMaxBytes) < 256);

// A chunk 0 as it stands in a leaf, checked.
struct FirstChunk {
    uint32_t value_bytes = 0;
    vfs::Name name;
    ByteSpan bytes;  // of the value
};

bool parse_first_chunk(ByteSpan value, FirstChunk& chunk) {
    XattrValue header;
    if (value.size() < sizeof(header) || value.size() > kXattrChunkBytes) {
        return false;
    }
    __builtin_memcpy(&header, value.data(), sizeof(header));
    if (header.name_bytes == 0 || header.value_bytes > vfs::kXattrValueMaxBytes ||
        value.size() - sizeof(header) < header.name_bytes) {
        return false;
    }
    chunk.value_bytes = header.value_bytes;
    chunk.name =
        vfs::Name(reinterpret_cast<const char*>(value.data() + sizeof(header)), header.name_bytes);
    chunk.bytes = value.subspan(sizeof(header) + header.name_bytes);
    return chunk.bytes.size() == minimum(header.value_bytes, first_chunk_room(header.name_bytes));
}

// Goes through the attributes with one hash, in order of slots and chunks.
class XattrSearch final : public TreeVisitor {
  public:
    XattrSearch(uint64_t node, uint64_t hash, vfs::Name name, MutableByteSpan buffer)
        : node_(node), hash_(hash), name_(name), buffer_(buffer) {}

    Key first() const { return make_key(node_, Kind::xattr, hash_ << kHashShift); }
    Key end() const { return next_key(make_key(node_, Kind::xattr, hash_ << kHashShift | 0xffff)); }

    bool visit(Key key, ByteSpan value) override {
        const uint32_t slot = (key.offset() >> kSlotShift) & (kSlots - 1);
        const uint32_t chunk = key.offset() & 0xff;
        if (chunk == 0) {
            return !place_.found && visit_first(key, slot, value);
        }
        return !place_.found || visit_further(slot, chunk, value);
    }

    // After the scan.
    bool damaged() const { return damaged_ || (place_.found && copied_ != place_.value_bytes); }
    bool has_place() const { return place_.found || free_slot_ < kSlots; }
    XattrPlace place() const {
        XattrPlace place = place_;
        if (!place.found) {
            place.offset = hash_ << kHashShift | uint64_t{free_slot_} << kSlotShift;
        }
        return place;
    }

  private:
    bool visit_first(Key key, uint32_t slot, ByteSpan value) {
        FirstChunk chunk;
        if (!parse_first_chunk(value, chunk)) {
            damaged_ = true;
            return false;
        }
        if (slot == free_slot_) {
            ++free_slot_;
        }
        if (!(chunk.name == name_)) {
            return true;
        }
        place_ = XattrPlace{true, key.offset(), chunk.value_bytes,
                            chunk_count(name_.size_bytes, chunk.value_bytes)};
        slot_ = slot;
        copy(chunk.bytes);
        return place_.chunks > 1;
    }

    bool visit_further(uint32_t slot, uint32_t chunk, ByteSpan value) {
        if (slot != slot_ || chunk != next_chunk_ ||
            value.size() != minimum(kXattrChunkBytes, place_.value_bytes - copied_)) {
            damaged_ = true;
            return false;
        }
        ++next_chunk_;
        copy(value);
        return copied_ < place_.value_bytes;
    }

    void copy(ByteSpan bytes) {
        if (place_.value_bytes <= buffer_.size() && !bytes.empty()) {
            __builtin_memcpy(buffer_.data() + copied_, bytes.data(), bytes.size());
        }
        copied_ += bytes.size();
    }

    uint64_t node_;
    uint64_t hash_;
    vfs::Name name_;
    MutableByteSpan buffer_;
    XattrPlace place_;
    uint32_t free_slot_ = 0;  // no slot below it is free
    uint32_t slot_ = 0;       // of the attribute that was found
    uint32_t next_chunk_ = 1;
    size_t copied_ = 0;
    bool damaged_ = false;
};

// Collects names.
class XattrLister final : public TreeVisitor {
  public:
    explicit XattrLister(MutableByteSpan buffer) : buffer_(buffer) {}

    bool visit(Key key, ByteSpan value) override {
        FirstChunk chunk;
        if ((key.offset() & 0xff) != 0) {
            return true;
        }
        if (!parse_first_chunk(value, chunk)) {
            damaged_ = true;
            return false;
        }
        const size_t needed = chunk.name.size_bytes + 1;
        if (size_ + needed <= buffer_.size()) {
            __builtin_memcpy(buffer_.data() + size_, chunk.name.data, chunk.name.size_bytes);
            buffer_[size_ + needed - 1] = '\0';
        }
        size_ += needed;
        return true;
    }

    size_t size() const { return size_; }
    bool damaged() const { return damaged_; }

  private:
    MutableByteSpan buffer_;
    size_t size_ = 0;
    bool damaged_ = false;
};

}  // namespace

Result<XattrKind> xattr_kind(vfs::Name name) {
    struct Prefix {
        vfs::Name text;
        XattrKind kind;
    };
    static constexpr Prefix kPrefixes[] = {{"user.", XattrKind::user},
                                           {"trusted.", XattrKind::trusted},
                                           {"security.", XattrKind::security}};
    if (name.size_bytes == 0 || name.size_bytes > vfs::kXattrNameMaxBytes) {
        return Error::erange;
    }
    for (const Prefix& prefix : kPrefixes) {
        if (has_prefix(name, prefix.text)) {
            if (name.size_bytes == prefix.text.size_bytes) {
                return Error::einval;
            }
            return prefix.kind;
        }
    }
    if (name == kAccessAclName) {
        return XattrKind::access_acl;
    }
    if (name == kDefaultAclName) {
        return XattrKind::default_acl;
    }
    return Error::eopnotsupp;
}

Result<void> HeapBytes::resize(size_t size_bytes) {
    clear();
    if (size_bytes != 0) {
        data_ = static_cast<unsigned char*>(host::allocate(size_bytes));
        if (data_ == nullptr) {
            return Error::enomem;
        }
        size_ = size_bytes;
    }
    return {};
}

Result<void> HeapBytes::assign(ByteSpan bytes) {
    TRY(resize(bytes.size()));
    if (!bytes.empty()) {
        __builtin_memcpy(data_, bytes.data(), bytes.size());
    }
    return {};
}

void HeapBytes::clear() {
    host::release(data_, size_);
    data_ = nullptr;
    size_ = 0;
}

Result<XattrPlace> find_xattr(Volume& volume, uint64_t node, vfs::Name name, bool for_insertion,
                              MutableByteSpan buffer) {
    const uint64_t hash =
        siphash24(volume.superblock().hash_key, name.data, name.size_bytes) & kHashMask;
    XattrSearch search(node, hash, name, buffer);
    TRY(volume.tree().scan(search.first(), search.end(), search));
    if (search.damaged()) {
        return volume.report_damage("an extended attribute is malformed", node,
                                    search.first().offset());
    }
    if (for_insertion && !search.has_place()) {
        return Error::enospc;
    }
    return search.place();
}

Result<void> read_xattr(Volume& volume, uint64_t node, vfs::Name name, HeapBytes& value) {
    XattrPlace place = TRY(find_xattr(volume, node, name, false));
    if (!place.found) {
        return Error::enodata;
    }
    TRY(value.resize(place.value_bytes));
    TRY(find_xattr(volume, node, name, false, value.bytes()));
    return {};
}

Result<size_t> list_xattrs(Volume& volume, uint64_t node, MutableByteSpan buffer) {
    XattrLister lister(buffer);
    TRY(volume.tree().scan(make_key(node, Kind::xattr, 0),
                           next_key(make_key(node, Kind::xattr, kKeyOffsetMask)), lister));
    if (lister.damaged()) {
        return volume.report_damage("an extended attribute is malformed", node, 0);
    }
    if (!buffer.empty() && lister.size() > buffer.size()) {
        return Error::erange;
    }
    return lister.size();
}

uint32_t xattr_change_bytes(vfs::Name name, size_t value_bytes, const XattrPlace& place) {
    const uint32_t chunks = chunk_count(name.size_bytes, value_bytes);
    const uint32_t touched = chunks > place.chunks ? chunks : place.chunks;
    return touched * (kXattrChunkBytes + static_cast<uint32_t>(sizeof(RecordHeader))) +
           2 * static_cast<uint32_t>(sizeof(RecordHeader) + sizeof(Key));
}

Result<void> stage_xattr(Transaction& transaction, uint64_t node, const XattrPlace& place,
                         vfs::Name name, ByteSpan value) {
    TIFFIN_EXPECT(transaction.volume(), value.size() <= vfs::kXattrValueMaxBytes &&
                                            name.size_bytes <= vfs::kXattrNameMaxBytes);
    // Header and name in one piece: put() takes two.
    unsigned char head[sizeof(XattrValue) + vfs::kXattrNameMaxBytes];
    const XattrValue header{static_cast<uint32_t>(value.size()),
                            static_cast<uint8_t>(name.size_bytes)};
    __builtin_memcpy(head, &header, sizeof(header));
    __builtin_memcpy(head + sizeof(header), bytes_of(name).data(), name.size_bytes);
    size_t done = minimum(value.size(), first_chunk_room(name.size_bytes));
    TRY(transaction.put(make_key(node, Kind::xattr, place.offset),
                        ByteSpan(head, sizeof(header) + name.size_bytes), value.first(done)));
    uint32_t chunk = 1;
    for (; done < value.size(); ++chunk) {
        const size_t size = minimum(kXattrChunkBytes, value.size() - done);
        TRY(transaction.put(make_key(node, Kind::xattr, place.offset | chunk),
                            value.subspan(done, size)));
        done += size;
    }
    if (place.chunks > chunk) {
        TRY(transaction.erase_range(
            make_key(node, Kind::xattr, place.offset | chunk),
            next_key(make_key(node, Kind::xattr, place.offset | (place.chunks - 1)))));
    }
    return {};
}

Result<void> stage_xattr_removal(Transaction& transaction, uint64_t node, const XattrPlace& place) {
    if (place.chunks == 1) {
        return transaction.erase(make_key(node, Kind::xattr, place.offset));
    }
    return transaction.erase_range(
        make_key(node, Kind::xattr, place.offset),
        next_key(make_key(node, Kind::xattr, place.offset | (place.chunks - 1))));
}

}  // namespace tiffin::tiffinfs
