// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/message_sizes.h"

#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk::wire {

MessageSizes message_sizes(uint8_t type) {
    switch (static_cast<MessageType>(type)) {
        case MessageType::client_hello:
            return {sizeof(ClientHello), 0, Sealing::never};
        case MessageType::hello_retry:
            return {sizeof(HelloRetry), 0, Sealing::never};
        case MessageType::server_hello:
            return {sizeof(ServerHello), 0, Sealing::never};
        case MessageType::client_proof:
            return {sizeof(ClientProof), 0, Sealing::never};
        case MessageType::session_open:
            return {sizeof(SessionOpen), size_t{kMaxSlots} * sizeof(OutstandingEntry),
                    Sealing::always};
        case MessageType::session_opened:
            return {sizeof(SessionOpened), kMaxSlots, Sealing::always};
        case MessageType::session_refused:
            return {sizeof(SessionRefused), 0, Sealing::always};
        case MessageType::path_join:
            return {sizeof(PathJoin), kMaxPathParametersBytes, Sealing::always};
        case MessageType::path_joined:
            return {sizeof(PathJoined), kMaxPathParametersBytes, Sealing::always};
        case MessageType::path_recover:
            return {sizeof(PathRecover), size_t{kMaxSlots} * sizeof(OutstandingEntry),
                    Sealing::always};
        case MessageType::path_recovered:
            return {sizeof(PathRecovered), kMaxSlots, Sealing::always};
        case MessageType::lease_request:
            return {sizeof(LeaseRequest), 0, Sealing::always};
        case MessageType::lease_reply:
            return {sizeof(LeaseReply), 0, Sealing::always};
        case MessageType::session_close:
        case MessageType::session_closed:
            return {sizeof(SessionClose), 0, Sealing::always};
        case MessageType::probe:
        case MessageType::probe_reply:
            return {sizeof(Probe), 0, Sealing::always};
        case MessageType::notice:
            return {sizeof(Notice), 0, Sealing::always};
        case MessageType::request:
            return {sizeof(Request), kMaxTransferBytes, Sealing::by_session};
        case MessageType::response:
            return {sizeof(Response), kMaxTransferBytes, Sealing::by_session};
    }
    return {};
}

}  // namespace tiffin::rdma_blk::wire
