// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/data_check.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "fs/tiffinfs/volume/extents.h"
#include "fs/vfs/host.h"
#include "fuse/check/block_io.h"
#include "fuse/check/links.h"

namespace tiffin::check {

using tiffinfs::kBlockBytes;
using tiffinfs::Key;
using tiffinfs::MappedExtent;

namespace {

class DataCheck {
  public:
    DataCheck(Context& context, KeySpace& keys, Objects& objects, uint64_t first_block)
        : context_(context),
          keys_(keys),
          objects_(objects),
          first_block_(first_block),
          buffer_(tiffinfs::kWrittenExtentMaximumBlocks) {}

    bool visit(Key key, ByteSpan value) {
        MappedExtent extent;
        if (key.node == tiffinfs::kVolumeNode ||
            !tiffinfs::parse_extent(key, value, context_.layout.total_blocks, extent) ||
            !extent.has_checksums() || extent.physical_block + extent.block_count <= first_block_) {
            return !context_.cancelled();
        }
        const double total = static_cast<double>(context_.superblock.used_blocks) + 1;
        context_.progress(
            Phase::data,
            static_cast<double>(context_.report().statistics.data_blocks_verified) / total);
        verify(key.node, extent);
        context_.report().statistics.data_blocks_verified += extent.block_count;
        return !context_.cancelled();
    }

  private:
    void verify(uint64_t node, const MappedExtent& extent) {
        if (!context_.device()
                 .read(extent.physical_block * kBlockBytes, buffer_.data(),
                       size_t{extent.block_count} * kBlockBytes)
                 .ok()) {
            verify_singly(node, extent);
            return;
        }
        for (uint64_t i = 0; i < extent.block_count; ++i) {
            check_block(node, extent, i, buffer_[i]);
        }
    }

    // The device could not read all of it: which blocks?
    void verify_singly(uint64_t node, const MappedExtent& extent) {
        for (uint64_t i = 0; i < extent.block_count && !context_.cancelled(); ++i) {
            if (read_block(context_.device(), extent.physical_block + i, buffer_[0])) {
                check_block(node, extent, i, buffer_[0]);
            } else {
                report(Code::data_unreadable, node, extent, i, "the device cannot read it");
            }
        }
    }

    void check_block(uint64_t node, const MappedExtent& extent, uint64_t index,
                     const Block& block) {
        const uint32_t found = host::crc32c(0, block.bytes, sizeof block.bytes);
        const uint32_t expected = extent.checksum_of(extent.file_block + index);
        if (found != expected) {
            report(Code::data_checksum, node, extent, index,
                   fmt::format("checksum is {:#010x}, should be {:#010x}", found, expected));
        }
    }

    void report(Code code, uint64_t node, const MappedExtent& extent, uint64_t index,
                std::string_view what) {
        context_.found_for_good(
            code,
            fmt::format("{}, block {} (block {} of the device)", path_text(keys_, objects_, node),
                        extent.file_block + index, extent.physical_block + index),
            what);
    }

    Context& context_;
    KeySpace& keys_;
    Objects& objects_;
    const uint64_t first_block_;  // of the device
    std::vector<Block> buffer_;
};

}  // namespace

Result<void> check_data(Context& context, KeySpace& keys, Objects& objects, uint64_t from_bytes) {
    const uint64_t first_block = from_bytes / kBlockBytes;
    if (first_block >= context.layout.total_blocks) {
        return {};
    }
    DataCheck check(context, keys, objects, first_block);
    TRY(keys.scan([&](Key key, ByteSpan value) { return check.visit(key, value); }));
    context.progress(Phase::data, 1);
    return {};
}

}  // namespace tiffin::check
