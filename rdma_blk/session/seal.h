// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sealed bodies of messages: ChaCha20-Poly1305 in chunks, with a counter for each direction as nonce. Both
// ends must see the same chunks in the same order, as on a stream; any difference is eacces, for good.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// One direction of one connection, at one end. Not for several threads at once.
class Seal {
  public:
    // Chunks in one direction; a connection that gets there must be replaced (open() and seal(): eproto).
    static constexpr uint64_t kMaxChunks = uint64_t{1} << 48;

    explicit Seal(const Secret<kSealKeyBytes>& key) : key_(key) {}

    // Seals one chunk, of 1 to wire::kSealedChunkBytes, in place: `chunk` becomes ciphertext, `tag` gets
    // what follows it. `header`: of its message, for the first chunk of a message, else nullptr.
    Result<void> seal(MutableByteSpan chunk, const wire::MessageHeader* header,
                      unsigned char tag[wire::kSealTagBytes]);
    // The reverse. After an error the content of `chunk` means nothing, and the connection must end.
    Result<void> open(MutableByteSpan chunk, const wire::MessageHeader* header,
                      const unsigned char tag[wire::kSealTagBytes]);

  private:
    Result<void> next_nonce(unsigned char nonce[12]);

    Secret<kSealKeyBytes> key_;
    uint64_t next_chunk_ = 0;
};

}  // namespace tiffin::rdma_blk
