// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sealed messages: ChaCha20-Poly1305. On a stream in chunks, with a counter for each direction as nonce: both ends must see
// the same chunks in the same order. On a path beside it as a whole, with the message's number as nonce, in any order. Any
// difference is eacces, for good.
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

// One direction of one path, at one end. Not for several threads at once.
class MessageSeal {
  public:
    // `key`: TrafficKeys::path_to_server or path_to_client; the numbers: of the path's ends, DatagramPathEnd::connection_id or
    // that of UcPathEnd.
    MessageSeal(const Secret<kSealKeyBytes>& key, uint32_t receiver_connection_id,
                uint32_t sender_connection_id);

    // Seals a message in place; `tag` gets what it is checked by. `use` is authenticated with it. Errors: eproto, for a
    // number that is not larger than all before it: one nonce for two messages would tell both.
    Result<void> seal(uint64_t number, uint32_t use, MutableByteSpan message,
                      unsigned char tag[wire::kSealTagBytes]);
    // The reverse; after an error the content of `message` means nothing.
    Result<void> open(uint64_t number, uint32_t use, MutableByteSpan message,
                      const unsigned char tag[wire::kSealTagBytes]) const;

  private:
    Secret<kSealKeyBytes> key_;
    uint64_t next_number_ = 0;
};

}  // namespace tiffin::rdma_blk
