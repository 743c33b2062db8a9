// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/read_reply.h"

#include <sys/uio.h>

#include <array>
#include <utility>

#include "fs/vfs/content_reader.h"
#include "fs/vfs/host.h"
#include "fuse/session/session.h"
#include "fuse/session/thread_buffer.h"
#include "fuse/session/thread_object.h"

namespace tiffin::fuse {
namespace {

// Holes of any request. Never written, so the system maps all of it to one page of zeros.
unsigned char* zeros() {
    alignas(vfs::kBlockBytes) static unsigned char memory[kMaxRequestBytes];
    return memory;
}

// What one thread needs to answer a read; kept from request to request, so that reading allocates
// nothing.
struct ReadAnswer {
    // Each block in another place, with a hole before each.
    static constexpr size_t kMaximumPieces = size_t{2} * (kMaxRequestBytes / vfs::kBlockBytes + 2);

    // Whatever the outcome, the reader's release() follows. Errors also: e2big (too many pieces for this class).
    Result<void> prepare(vfs::FileSystem& file_system, vfs::BlockDevice& device, vfs::NodeId node,
                         uint64_t offset_bytes, size_t size_bytes);

    vfs::ContentReader reader;
    size_t piece_count = 0;
    std::array<iovec, kMaximumPieces> pieces;
};

Result<void> ReadAnswer::prepare(vfs::FileSystem& file_system, vfs::BlockDevice& device,
                                 vfs::NodeId node, uint64_t offset_bytes, size_t size_bytes) {
    static_assert(kMaxRequestBytes <= vfs::ContentReader::kMaximumBytes);
    TRY(reader.map(file_system, device, node, offset_bytes, size_bytes));
    unsigned char* memory = nullptr;
    if (reader.fetch_bytes() != 0) {
        memory = thread_buffer(reader.fetch_bytes());
        if (memory == nullptr) {
            return Error::enomem;
        }
    }
    TRY(reader.fetch(memory));
    piece_count = 0;
    reader.for_each_piece([this](const unsigned char* content, size_t length) {
        // Only sent from.
        auto* bytes = const_cast<unsigned char*>(content == nullptr ? zeros() : content);
        TIFFIN_ASSERT(piece_count < pieces.size());
        pieces[piece_count++] = {bytes, length};
    });
    return {};
}

// For file systems without a lower data path.
void reply_through_buffer(Request request, vfs::NodeId node, vfs::Handle handle,
                          uint64_t offset_bytes, size_t size_bytes) {
    unsigned char* memory = thread_buffer(size_bytes);
    if (memory == nullptr) {
        return request.fail(Error::enomem);
    }
    const vfs::IoVector piece{memory, size_bytes};
    Result<size_t> length = request.file_system().read(node, handle, offset_bytes,
                                                       Span<const vfs::IoVector>(&piece, 1));
    if (!length.ok()) {
        return request.fail(length.error());
    }
    TIFFIN_ASSERT(length.value() <= size_bytes);
    // A killed reader needs nothing to be taken back.
    (void)request.data(memory, length.value());
}

}  // namespace

void reply_with_data(Request request, vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                     size_t size_bytes, bool notes_access) {
    vfs::FileSystem& file_system = request.file_system();
    vfs::BlockDevice* device = request.session().device();
    ReadAnswer* answer = ThreadObject<ReadAnswer>::get();
    if (device == nullptr || answer == nullptr || size_bytes > kMaxRequestBytes) {
        return reply_through_buffer(std::move(request), node, handle, offset_bytes, size_bytes);
    }
    // Before the blocks are mapped, since it may have to wait for a checkpoint, which waits for
    // mapped blocks; and before the answer, since the caller may ask for the time at once.
    if (notes_access) {
        file_system.note_read(node);
    }
    Result<void> prepared = answer->prepare(file_system, *device, node, offset_bytes, size_bytes);
    if (prepared.ok()) {
        request.data(answer->pieces.data(), answer->piece_count, answer->reader.length_bytes());
    }
    answer->reader.release();
    if (prepared.ok()) {
        return;
    }
    if (prepared.error() == Error::eopnotsupp || prepared.error() == Error::e2big) {
        return reply_through_buffer(std::move(request), node, handle, offset_bytes, size_bytes);
    }
    request.fail(prepared.error());
}

}  // namespace tiffin::fuse
