// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages over queue pairs of an RDMA device: how a path is made.
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_path.h"

namespace tiffin::rdma_blk {
namespace {

// Both ends take it for where packets land (docs/remote-format.md): room for the parity of the code that both use, or of
// the largest one that the choice by measurement may take.
sdr::SchemeChoice landing_code(const MessagePathOptions& options) {
    const bool is_given = !options.automatic_scheme && options.scheme.is_erasure();
    return is_given ? options.scheme
                    : sdr::SchemeChoice{sdr::SchemeKind::erasure_mds, sdr::kDefaultDataChunks,
                                        sdr::kDefaultParityChunks};
}
static_assert(wire::kMinUcPathReceives == kMinUcReceiveDepth);
static_assert(wire::kMaxUcPathReceives == kMaxUcReceiveDepth);
static_assert(wire::kMaxUcPathMessages <= sdr::kMaxUcMessages);

}  // namespace

Result<std::unique_ptr<MessagePath>> MessagePath::create_uc(const MessagePathOptions& options,
                                                            std::unique_ptr<verbs::Device> device) {
    if (options.packet_bytes < wire::kMinUcPacketBytes ||
        options.packet_bytes > wire::kMaxUcPacketBytes ||
        !std::has_single_bit(options.packet_bytes) ||
        options.message_count > wire::kMaxUcPathMessages) {
        return Error::einval;
    }
    std::unique_ptr<MessagePath> path(new (std::nothrow) MessagePath(options));
    if (!path) {
        return Error::enomem;
    }
    path->tag_bytes_ = path->tag_bytes_for(wire::kUcMessageTagBytes);
    path->device_ = std::move(device);
    UcOptions uc;
    uc.queue_pair = path->queue_pair_attributes();
    uc.code = landing_code(options);
    uc.drop_ppm = options.drop_ppm;
    std::memcpy(uc.send_key, options.send_key, sizeof(uc.send_key));
    std::memcpy(uc.receive_key, options.receive_key, sizeof(uc.receive_key));
    std::unique_ptr<UcChannel> channel = TRY(UcChannel::create(*path->device_, uc));
    path->uc_ = channel.get();
    path->channel_ = std::move(channel);
    return path;
}

wire::UcPathEnd MessagePath::uc_end() const {
    const UcInfo info = uc_->info_get();
    wire::UcPathEnd end{};
    end.connection_id = info.connection_id;
    end.packet_bytes = options_.packet_bytes;
    end.message_bytes = static_cast<uint32_t>(slot_bytes());
    end.receive_depth = info.receive_depth;
    end.message_count = options_.message_count;
    end.landing_slots = std::min(options_.landing_slots, options_.message_count);
    static_assert(sizeof(end.arenas) == sizeof(info.arenas));
    std::memcpy(end.arenas, info.arenas, sizeof(end.arenas));
    end.data = info.data;
    end.control = info.control;
    return end;
}

Result<void> MessagePath::start_uc(const wire::UcPathEnd& agreed) {
    if (agreed.packet_bytes > options_.packet_bytes ||
        agreed.message_count > options_.message_count || agreed.message_bytes != slot_bytes()) {
        return Error::einval;
    }
    options_.packet_bytes = agreed.packet_bytes;
    options_.message_count = agreed.message_count;
    TRY(start_seals(agreed.connection_id, uc_->info_get().connection_id));
    TRY(start_messages());
    UcInfo peer;
    peer.connection_id = agreed.connection_id;
    peer.receive_depth = agreed.receive_depth;
    peer.layout = TRY(sdr::landing_layout(queue_pair_attributes(), landing_code(options_)));
    std::memcpy(peer.arenas, agreed.arenas, sizeof(peer.arenas));
    peer.data = agreed.data;
    peer.control = agreed.control;
    return uc_->start(peer);
}

}  // namespace tiffin::rdma_blk
