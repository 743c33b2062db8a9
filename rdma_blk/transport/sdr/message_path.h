// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Whole messages in both directions over one UDP socket, or over queue pairs of an RDMA device: a reliable SDR connection
// with the memory that messages land in and are sent from, for a client's and a server's end alike. It has no thread and
// no lock: whoever waits for its descriptor drives it.
//
//     path = TRY(MessagePath::create(options));  path->end() -> peer;  path->start(peer's end, peer's address)
//     poll(path->descriptor(), until path->next_time_ns(now_ns));
//     path->take(now_ns);                          what has come
//     while (path->next_message(message)) { ... message.bytes ...; path->release(now_ns, message); }
//     bytes = path->begin_message(); ...; path->send_message(now_ns, size);
//     path->transmit(now_ns);                      what is new, what is repeated, what is acknowledged
//
// A message that came lies in a landing slot until release(): from then on another one may land there, and never
// a packet of the old one (sdr.h). A message that is sent lies in a slot of its own until the peer has it, but for the
// pieces of send_gathered(). All memory
// is taken by create() and start(), pages of it when they are first used; but for queue pairs, all of what packets land in.
//
// Over a socket, each datagram is authenticated. Over queue pairs only control messages are, and a message is as a whole: it
// has a tag in front, of its number, use, length and CRC32C, under the key of its direction. Where the connection encrypts,
// each message is sealed, over sockets, too, and its tag is that of the cipher (message_path_seal.cc). One that is wrong ends
// the path.
#pragma once

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/sdr/packet_channel.h"
#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/sdr/udp/udp_channel.h"
#include "rdma_blk/session/seal.h"
#include "rdma_blk/transport/sdr/mapped_slots.h"
#include "rdma_blk/transport/uc/uc_channel.h"
#include "rdma_blk/transport/verbs/verbs.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// Of paths over queue pairs: each end keeps memory for twice as many messages of the largest size, and parity.
inline constexpr uint16_t kUcPathMessages = 16;

struct MessagePathOptions {
    sockaddr_in6 local = {};  // port 0: any; IPv4 as ::ffff:a.b.c.d
    bool shares_port =
        false;  // several paths of this process have this port; peers tell them apart
    uint32_t packet_bytes = 0;
    uint16_t message_count = 64;  // a power of two: sent and not acknowledged, in each direction
    uint16_t landing_slots = 16;  // 1 to message_count
    unsigned char send_key[sdr::kTagKeyBytes] = {};
    unsigned char receive_key[sdr::kTagKeyBytes] = {};
    bool encrypts = false;  // both ends the same; then with these
    Secret<kSealKeyBytes> seal_send_key;
    Secret<kSealKeyBytes> seal_receive_key;
    // What is sent: by measurement, or by one scheme.
    bool automatic_scheme = true;
    sdr::SchemeChoice scheme;
    uint64_t give_up_ns = 10'000'000'000;
    uint32_t drop_ppm = 0;  // for trials: this share of what is sent is lost, in parts of a million

    // Of a path's end, as parsed (wire/parse.h).
    void set_repair(const wire::SdrRepair& wanted);
    // All of the above that a handshake has agreed on.
    void set_keys(const TrafficKeys& keys, bool is_client);
};

// Counters since the creation. Over queue pairs, packets count as datagrams.
struct MessagePathStatistics {
    uint64_t datagrams_sent = 0;
    uint64_t datagrams_received = 0;
    uint64_t datagrams_refused = 0;  // wrong connection, tag or number, or not as they should be
    uint64_t datagrams_dropped = 0;  // by this host's kernel
    uint64_t chunks_lost = 0;      // that had to be decoded or asked for, of what this end receives
    uint64_t chunks_repeated = 0;  // by this end
    uint64_t blocks_decoded = 0;   // groups of an erasure code
    uint64_t blocks_failed = 0;    // that could not be decoded, and were repeated
    uint64_t system_calls = 0;     // but for looks that found nothing
    uint64_t bytes_copied = 0;     // into slots, of what is sent and of what has come
    uint32_t round_trip_us = 0;
    uint64_t path_rate_bytes_per_s = 0;  // of what this end sends; 0: not measured
    // As of UdpStatistics: what gets through whole (0: not known), and whether this path's packets are known not to.
    uint32_t path_packet_bytes = 0;
    bool path_is_too_narrow = false;

    // Of the packets of the next path between these ends, at most, if this one's are known not to get through whole, or
    // those of an earlier one were (`before`, else 0): it would stand still, too, until it has failed. They grow again
    // with what later probes find. 0: nothing is known.
    uint32_t next_packet_bytes(uint32_t before) const {
        const bool is_of_use = path_is_too_narrow || before != 0;
        return is_of_use && path_packet_bytes >= wire::kMinDatagramPayloadBytes ? path_packet_bytes
                                                                                : before;
    }
};

class MessagePath {
  public:
    // Opens the socket. Errors: einval, enomem, those of sockets (eaddrinuse: the port is another's).
    static Result<std::unique_ptr<MessagePath>> create(const MessagePathOptions& options);
    ~MessagePath();
    MessagePath(const MessagePath&) = delete;
    MessagePath& operator=(const MessagePath&) = delete;

    // For the peer.
    wire::DatagramPathEnd end() const;
    // `end` with the numbers that hold for both: of this path's own what its peer is told, of the peer's what start() takes.
    static wire::DatagramPathEnd common(wire::DatagramPathEnd end,
                                        const wire::DatagramPathEnd& other);
    // `agreed`: common() of the peer's end; `peer`: its address, with port. Errors: einval, enomem, those of sockets.
    Result<void> start(const wire::DatagramPathEnd& agreed, const sockaddr_in6& peer);

    // ---- Instead of create(), end() and start(): over queue pairs ----

    // Of the options, local and shares_port mean nothing. Errors: those of UcChannel::create().
    static Result<std::unique_ptr<MessagePath>> create_uc(const MessagePathOptions& options,
                                                          std::unique_ptr<verbs::Device> device);
    wire::UcPathEnd uc_end() const;
    // `agreed`: the peer's end, with the numbers that hold for both. Errors: einval, e2big, enomem, eio.
    Result<void> start_uc(const wire::UcPathEnd& agreed);

    // ---- From then on ----

    int descriptor() const { return channel_->descriptor(); }
    // Whether something has come. One system call, and nothing else: take() follows, and no transmit() before it.
    bool look(uint64_t now_ns);
    // Takes what has come. True: there may be more. transmit() follows, at the latest when all is taken.
    bool take(uint64_t now_ns);
    // Sends what there is to send, as far as the network takes it; blocks for a millisecond at most.
    void transmit(uint64_t now_ns);
    // When to call both although nothing comes.
    uint64_t next_time_ns(uint64_t now_ns) const;
    // The peer has not been heard of for give_up_ns, or has given up itself, or the device has failed, or somebody has
    // forged a message: nothing comes or goes any more.
    bool has_failed() const {
        return connection_->has_failed() || channel_->has_failed() || is_forged_;
    }
    // See sdr::ReliableConnection::silence_ns(). Precondition: is_started().
    uint64_t silence_ns(uint64_t now_ns) const { return connection_->silence_ns(now_ns); }
    bool is_started() const { return connection_ != nullptr; }

    struct Message {
        ByteSpan bytes;
        uint32_t use = 0;  // what the sender gave
        uint32_t slot = 0;
    };
    // The oldest message that came whole; false: none.
    bool next_message(Message& message);
    // Its memory takes the next message.
    void release(uint64_t now_ns, const Message& message);

    bool has_room() const { return free_messages() > 0; }
    // So many messages can be sent now. One that is lost keeps later numbers from being used until it has come after
    // all, though their memory is free.
    size_t free_messages() const {
        return std::min<size_t>(free_sends_.size(), connection_->free_sends());
    }
    // Memory for a message of at most kDatagramMessageBytes. Precondition: has_room().
    unsigned char* begin_message();
    // Sends what lies at its beginning. With room it fails only for a size that does not fit (einval).
    Result<void> send_message(uint64_t now_ns, size_t size_bytes, uint32_t use);
    // Likewise, and behind it what the pieces hold, which may be read until give_back() of the number that is returned, or
    // the end of the path; they and their list stay as they are. kNoMessage: all has been copied.
    static constexpr uint64_t kNoMessage = ~uint64_t{0};
    Result<uint64_t> send_gathered(uint64_t now_ns, size_t head_bytes, const vfs::IoVector* pieces,
                                   size_t piece_count, uint32_t use);
    // Whether a message of this size should have a checksum of its own: it is sent with an erasure code now, what that
    // restores has no checksum of a datagram, and messages have no tags here.
    bool needs_checksum(size_t size_bytes) { return tag_bytes_ == 0 && uses_code(size_bytes); }
    // The peer has answered the message: it has all of it, and the pieces are not read from here on. False: it cannot have
    // all of it, and the path should end.
    bool give_back(uint64_t message_number);
    // The pieces are not read from here on, but the peer may not have the message: the rest is sent from a copy.
    // Precondition: is_sending() of one of send_gathered(), and no card reads what it sends.
    void keep(uint64_t message_number);
    bool is_sending(uint64_t message_number) const {
        return connection_->is_sending(message_number);
    }

    // For who has been idle: gives back the pages of messages that were sent, if none is on its way.
    void give_memory_back();

    MessagePathStatistics statistics() const;
    uint64_t datagrams_received() const { return channel_->packets_received(); }
    uint64_t bytes_received() const { return channel_->bytes_received(); }

  private:
    explicit MessagePath(const MessagePathOptions& options) : options_(options) {}
    Result<void> open_channel();
    bool uses_code(size_t size_bytes) { return connection_->scheme_now(size_bytes).is_erasure(); }
    uint64_t slot_bytes() const { return uint64_t{tag_bytes_} + wire::kDatagramMessageBytes; }
    sdr::QueuePairAttributes queue_pair_attributes() const;
    Result<void> start_messages();
    // One caller's clock may be older than that of another one who was here before; to the connection and the channel,
    // which subtract times, it never goes back.
    uint64_t never_back(uint64_t now_ns) { return latest_ns_ = std::max(latest_ns_, now_ns); }
    sdr::PacketChannel::Taken receive(uint64_t now_ns) {
        return channel_->take(now_ns, connection_->expected_place());
    }
    uint32_t tag_bytes_for(uint32_t without_seal) const {
        return options_.encrypts ? wire::kSealTagBytes : without_seal;
    }
    Result<void> start_seals(uint32_t peer_connection_id, uint32_t own_connection_id);
    Result<void> tag_message(uint64_t number, uint32_t use, MutableByteSpan tagged);
    Result<ByteSpan> check_message(uint64_t number, uint32_t use, MutableByteSpan tagged) const;
    void take_arrived(const sdr::Completion& completion, uint32_t slot);
    Result<uint64_t> post(uint64_t now_ns, const sdr::RegisteredMemory& memory, uint32_t use);
    void take_completions();
    void post_landing(uint64_t now_ns);

    MessagePathOptions options_;
    uint32_t connection_id_ = 0;
    std::unique_ptr<sdr::Context> context_;
    std::unique_ptr<sdr::ReliableConnection> connection_;
    std::unique_ptr<verbs::Device> device_;  // of queue pairs
    std::unique_ptr<sdr::PacketChannel> channel_;
    sdr::UdpChannel* udp_ = nullptr;  // one of the two is it
    UcChannel* uc_ = nullptr;
    uint32_t tag_bytes_ = 0;                 // in front of each message
    uint64_t next_number_ = 0;               // of the next message that is sent
    std::unique_ptr<MessageSeal> seal_out_;  // where the connection encrypts
    std::unique_ptr<MessageSeal> seal_in_;
    uint64_t forged_ = 0;
    bool is_forged_ = false;
    MappedSlots landing_;
    MappedSlots sending_;
    sdr::RegisteredMemory landing_memory_;
    sdr::RegisteredMemory sending_memory_;
    std::vector<uint32_t> free_sends_;       // a stack: what was used last is in the caches
    std::vector<uint32_t> free_landing_;     // and not posted yet
    std::vector<uint32_t> send_slot_;        // by message number modulo message_count
    std::vector<sdr::GatherList> gathered_;  // by slot
    std::vector<uint32_t> landing_slot_;     // the same
    std::vector<Message> arrived_;           // a ring of message_count
    size_t arrived_first_ = 0;
    size_t arrived_count_ = 0;
    uint64_t vain_looks_ = 0;
    uint64_t latest_ns_ = 0;
    bool has_looked_ = false;     // and found something, which take() has not seen yet
    bool may_have_more_ = false;  // after that
    uint64_t bytes_copied_ = 0;
};

// The largest payload of a datagram that paths to `peer` use, as far as this host knows the path.
Result<uint32_t> datagram_packet_bytes(const sockaddr_in6& peer);

}  // namespace tiffin::rdma_blk
