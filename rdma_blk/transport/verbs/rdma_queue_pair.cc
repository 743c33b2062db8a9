// SPDX-License-Identifier: MIT OR GPL-2.0-only
#if defined(TIFFIN_RDMA)
#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/verbs/rdma_device.h"

namespace tiffin::rdma_blk::verbs {
namespace {

// A packet is repeated after 4.096 us * 2^kTimeoutCode without an answer, kRetries times. By that formula the
// peer is given up after half a second; devices may take up to four times as long, which is still earlier than the
// session does. rdma_rxe takes 7 for "without end".
constexpr uint8_t kTimeoutCode = 14;
constexpr uint8_t kRetries = 6;
constexpr uint32_t kPacketNumberMask = 0xffffff;
constexpr size_t kPostAtOnce = 64;
constexpr size_t kPiecesAtOnce = 256;
constexpr size_t kPollAtOnce = 32;

Status status_of(ibv_wc_status status) {
    switch (status) {
        case IBV_WC_SUCCESS:
            return Status::success;
        case IBV_WC_REM_ACCESS_ERR:
        case IBV_WC_REM_INV_REQ_ERR:
            return Status::refused;
        case IBV_WC_RETRY_EXC_ERR:
        case IBV_WC_RNR_RETRY_EXC_ERR:
        case IBV_WC_WR_FLUSH_ERR:
            return Status::lost;
        default:
            return Status::failed;
    }
}

// `pieces` has room for the request's; returns whether the request makes sense.
bool translate(const WorkRequest& from, ibv_send_wr& to, ibv_sge* pieces) {
    to = ibv_send_wr{};
    to.wr_id = from.id;
    to.send_flags = (from.is_signalled ? unsigned{IBV_SEND_SIGNALED} : 0U) |
                    (from.is_fenced ? unsigned{IBV_SEND_FENCE} : 0U) |
                    (from.is_inline ? unsigned{IBV_SEND_INLINE} : 0U);
    to.sg_list = pieces;
    to.num_sge = static_cast<int>(from.piece_count);
    for (uint32_t i = 0; i < from.piece_count; i++) {
        pieces[i] = {reinterpret_cast<uint64_t>(from.pieces[i].address), from.pieces[i].size_bytes,
                     from.pieces[i].local_key};
    }
    switch (from.kind) {
        case WorkKind::send:
            to.opcode = IBV_WR_SEND;
            return true;
        case WorkKind::read:
        case WorkKind::write:
        case WorkKind::write_immediate:
            to.opcode = from.kind == WorkKind::read    ? IBV_WR_RDMA_READ
                        : from.kind == WorkKind::write ? IBV_WR_RDMA_WRITE
                                                       : IBV_WR_RDMA_WRITE_WITH_IMM;
            to.imm_data = htonl(from.immediate);  // in a union: no other kind has both
            to.wr.rdma.remote_addr = from.remote_address;
            to.wr.rdma.rkey = from.remote_key;
            return true;
        case WorkKind::bind_window: {
            auto& window = static_cast<RdmaWindow&>(*from.window);
            to.opcode = IBV_WR_BIND_MW;
            to.bind_mw.mw = window.window();
            to.bind_mw.rkey = window.next_key();
            to.bind_mw.bind_info.mr = static_cast<RdmaMemory&>(*from.memory).region();
            to.bind_mw.bind_info.addr = reinterpret_cast<uint64_t>(from.address);
            to.bind_mw.bind_info.length = from.size_bytes;
            to.bind_mw.bind_info.mw_access_flags =
                IBV_ACCESS_REMOTE_READ |
                (from.allows_writes ? unsigned{IBV_ACCESS_REMOTE_WRITE} : 0U);
            return true;
        }
        case WorkKind::invalidate:
            to.opcode = IBV_WR_LOCAL_INV;
            to.invalidate_rkey = from.window->key();
            return true;
    }
    return false;
}

}  // namespace

Result<std::unique_ptr<QueuePair>> RdmaQueuePair::create(const RdmaDevice& device,
                                                         const Shape& shape) {
    std::unique_ptr<RdmaQueuePair> made(new (std::nothrow)
                                            RdmaQueuePair(device, shape.is_reliable));
    if (!made) {
        return Error::enomem;
    }
    TRY(made->initialize(shape));
    return std::unique_ptr<QueuePair>(std::move(made));
}

Result<void> RdmaQueuePair::initialize(const Shape& shape) {
    if (shape.has_events) {
        channel_ = ibv_create_comp_channel(device_.context());
        if (channel_ == nullptr ||
            fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
            return Error::eio;
        }
    }
    const uint32_t received = is_reliable_ ? 0 : shape.receive_depth;
    queue_ = ibv_create_cq(device_.context(), static_cast<int>(shape.send_depth + received),
                           nullptr, channel_, 0);
    if (queue_ == nullptr) {
        return Error::eio;
    }
    ibv_qp_init_attr wanted{};
    wanted.send_cq = queue_;
    wanted.recv_cq = queue_;
    wanted.cap.max_send_wr = shape.send_depth;
    wanted.cap.max_recv_wr = shape.receive_depth;
    wanted.cap.max_send_sge = is_reliable_ ? device_.capabilities().piece_count : 1;
    wanted.cap.max_recv_sge = 1;
    wanted.cap.max_inline_data = is_reliable_ ? kInlineBytes : 0;
    wanted.qp_type = is_reliable_ ? IBV_QPT_RC : IBV_QPT_UC;
    pair_ = ibv_create_qp(device_.domain(), &wanted);
    if (pair_ == nullptr) {
        return Error::eio;
    }
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = device_.port();
    // Rights in general; what may be reached is decided by windows alone.
    attributes.qp_access_flags =
        is_reliable_ ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_REMOTE_WRITE;
    if (ibv_modify_qp(pair_, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
        return Error::eio;
    }
    std::memcpy(address_.gid, device_.gid().raw, sizeof(address_.gid));
    address_.queue_pair = pair_->qp_num;
    host::random_bytes(&address_.first_packet, sizeof(address_.first_packet));
    address_.first_packet &= kPacketNumberMask;
    address_.mtu = static_cast<uint8_t>(device_.mtu());
    address_.read_depth = device_.responder_depth();
    return {};
}

RdmaQueuePair::~RdmaQueuePair() {
    (void)destroy();
    if (queue_ != nullptr) {
        ibv_destroy_cq(queue_);
    }
    if (channel_ != nullptr) {
        ibv_destroy_comp_channel(channel_);
    }
}

Result<void> RdmaQueuePair::connect(const wire::QueuePairAddress& peer) {
    TRY(make_ready_to_receive(peer));
    return make_ready_to_send(peer);
}

Result<void> RdmaQueuePair::make_ready_to_receive(const wire::QueuePairAddress& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer.mtu, address_.mtu));
    attributes.dest_qp_num = peer.queue_pair;
    attributes.rq_psn = peer.first_packet;
    attributes.ah_attr.is_global = 1;
    std::memcpy(attributes.ah_attr.grh.dgid.raw, peer.gid, sizeof(peer.gid));
    attributes.ah_attr.grh.sgid_index = static_cast<uint8_t>(device_.gid_index());
    attributes.ah_attr.grh.hop_limit = 64;
    attributes.ah_attr.port_num = device_.port();
    int given = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    if (is_reliable_) {
        attributes.max_dest_rd_atomic = device_.responder_depth();
        attributes.min_rnr_timer = 12;
        given |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    return ibv_modify_qp(pair_, &attributes, given) == 0 ? Result<void>() : Error::eio;
}

Result<void> RdmaQueuePair::make_ready_to_send(const wire::QueuePairAddress& peer) {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.sq_psn = address_.first_packet;
    int given = IBV_QP_STATE | IBV_QP_SQ_PSN;
    if (is_reliable_) {
        attributes.timeout = kTimeoutCode;
        attributes.retry_cnt = kRetries;
        attributes.rnr_retry = kRetries;
        attributes.max_rd_atomic = std::min(device_.read_depth(), peer.read_depth);
        given |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    return ibv_modify_qp(pair_, &attributes, given) == 0 ? Result<void>() : Error::eio;
}

Result<void> RdmaQueuePair::post(const WorkRequest* work, size_t count) {
    ibv_send_wr requests[kPostAtOnce];
    ibv_sge pieces[kPiecesAtOnce];
    while (count > 0) {
        size_t used = 0;
        size_t used_pieces = 0;
        while (used < count && used < kPostAtOnce &&
               used_pieces + work[used].piece_count <= kPiecesAtOnce) {
            if (!translate(work[used], requests[used], pieces + used_pieces)) {
                return Error::einval;
            }
            used_pieces += work[used].piece_count;
            if (used > 0) {
                requests[used - 1].next = &requests[used];
            }
            used++;
        }
        ibv_send_wr* bad = nullptr;
        if (used == 0 || ibv_post_send(pair_, requests, &bad) != 0) {
            return Error::eio;
        }
        work += used;
        count -= used;
    }
    return {};
}

Result<void> RdmaQueuePair::post_receives(const Receive* receives, size_t count) {
    ibv_recv_wr requests[kPostAtOnce];
    ibv_sge pieces[kPostAtOnce];
    while (count > 0) {
        const size_t used = std::min(count, kPostAtOnce);
        for (size_t i = 0; i < used; i++) {
            const Piece& piece = receives[i].piece;
            pieces[i] = {reinterpret_cast<uint64_t>(piece.address), piece.size_bytes,
                         piece.local_key};
            requests[i] = {receives[i].id, i + 1 < used ? &requests[i + 1] : nullptr, &pieces[i],
                           piece.size_bytes > 0 ? 1 : 0};
        }
        ibv_recv_wr* bad = nullptr;
        if (ibv_post_recv(pair_, requests, &bad) != 0) {
            return Error::eio;
        }
        receives += used;
        count -= used;
    }
    return {};
}

size_t RdmaQueuePair::poll(Completion* completions, size_t capacity) {
    ibv_wc found[kPollAtOnce];
    const int count = ibv_poll_cq(queue_, static_cast<int>(std::min(capacity, kPollAtOnce)), found);
    for (int i = 0; i < count; i++) {
        completions[i] = {found[i].wr_id, status_of(found[i].status)};
        if (found[i].status != IBV_WC_SUCCESS) {
            continue;  // the other fields are not valid
        }
        completions[i].is_receive = (unsigned{found[i].opcode} & IBV_WC_RECV) != 0;
        completions[i].has_immediate = (found[i].wc_flags & IBV_WC_WITH_IMM) != 0;
        completions[i].immediate = ntohl(found[i].imm_data);
        completions[i].size_bytes = found[i].byte_len;
    }
    return count > 0 ? static_cast<size_t>(count) : 0;
}

Result<void> RdmaQueuePair::arm() {
    return ibv_req_notify_cq(queue_, 0) == 0 ? Result<void>() : Error::eio;
}

void RdmaQueuePair::disarm() {
    ibv_cq* queue = nullptr;
    void* owner = nullptr;
    while (ibv_get_cq_event(channel_, &queue, &owner) == 0) {
        ibv_ack_cq_events(queue, 1);
    }
}

Result<void> RdmaQueuePair::stop() {
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_ERR;
    return pair_ == nullptr || ibv_modify_qp(pair_, &attributes, IBV_QP_STATE) == 0 ? Result<void>()
                                                                                    : Error::eio;
}

Result<void> RdmaQueuePair::destroy() {
    if (pair_ != nullptr && ibv_destroy_qp(pair_) != 0) {
        return Error::eio;
    }
    pair_ = nullptr;
    return {};
}

}  // namespace tiffin::rdma_blk::verbs
#endif  // TIFFIN_RDMA
