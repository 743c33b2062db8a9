// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One part of a write, at most 256 blocks: room for it, and the transaction that makes it the file's content.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/data/data_scratch.h"
#include "fs/tiffinfs/data/write_state.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

// write_grant.cc. Grants room for the part at `offset_bytes`. With RoomPolicy::make new blocks where the range has none;
// with as_it_is, where those are not to be had, for what replaces mapped blocks at the beginning of the part. Errors:
// enospc and others of vfs::FileSystem::grant_write(); then nothing is granted.
Result<void> grant_part(TiffinFileSystem& file_system, vfs::WriteGrant& grant,
                        uint64_t offset_bytes, DataScratch& scratch);
// Takes back what is granted and not committed. Cannot fail.
void give_back_part(Volume& volume, vfs::WriteGrant& grant);

// write_commit.cc. One transaction that makes the first blocks of the part the file's, all of them if there is room;
// returns how many bytes that were. Makes room as long as that helps.
Result<uint64_t> commit_part(TiffinFileSystem& file_system, vfs::WriteGrant& grant,
                             Span<const uint32_t> checksums, ByteSpan content,
                             DataScratch& scratch);

}  // namespace tiffin::tiffinfs
