// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/keeper_messages.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tiffin::rdma_blk::keeper {

bool send_message(int socket, const Message& message, const int* descriptors) {
    iovec vector{const_cast<Message*>(&message), sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (descriptors != nullptr) {
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * kDescriptors);
        std::memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * kDescriptors);
    }
    ssize_t sent = -1;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(message));
}

bool receive_message(int socket, Message& message, KeptMemory& memory) {
    iovec vector{&message, sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    ssize_t received = -1;
    do {
        received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    const cmsghdr* rights = received > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int) * kDescriptors)) {
        int descriptors[kDescriptors];
        std::memcpy(descriptors, CMSG_DATA(rights), sizeof(descriptors));
        memory.data.reset(descriptors[0]);
        memory.control.reset(descriptors[1]);
    }
    message.volume_name[wire::kMaxVolumeNameBytes] = '\0';
    return received == static_cast<ssize_t>(sizeof(message));
}

Message make_message(MessageKind kind, const std::string& volume_name) {
    Message message;
    message.kind = kind;
    std::memcpy(message.volume_name, volume_name.data(),
                std::min(volume_name.size(), wire::kMaxVolumeNameBytes));
    return message;
}

}  // namespace tiffin::rdma_blk::keeper
