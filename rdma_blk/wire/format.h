// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The bytes between clients and memory servers: every message, and nothing else. docs/remote-format.md
// explains them with tables; rdma_blk/wire/parse.h reads them; control_area.h has the bytes in memory.
//
// All integers are little-endian. A message is a MessageHeader, a fixed part that its type decides, and
// a payload. On a stream messages follow each other; a datagram transport puts them behind a header of
// its own (connection id, packet number, keyed tag).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk::wire {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr uint32_t kMessageMagic = 0x4d524654;  // "TFRM"
// Of the header, and of the protocol. 1: a session has one connection. 2: it may have several, see PathJoin and PathRecover.
inline constexpr uint8_t kHeaderVersion = 1;
inline constexpr uint8_t kLowestVersion = 1;
inline constexpr uint8_t kHighestVersion = 3;
inline constexpr uint8_t kSeveralPathsVersion = 2;
inline constexpr uint8_t kSeveralQueuePairsVersion = 3;  // of rc: one beside each connection
inline constexpr uint16_t kDefaultPort = 4847;

// Bounds. A peer that exceeds one is in error, and its connection ends.
inline constexpr uint32_t kMaxTransferBytes = 1U << 20;  // of one read or write
inline constexpr uint32_t kEagerBytes = 16384;  // travels with its request on every transport
inline constexpr uint16_t kMaxSlots = 1024;
inline constexpr uint16_t kMaxFlushRanges = 256;
inline constexpr uint16_t kMaxPathParametersBytes = 512;
// Where a volume is found by processes of the server's host: DIRECTORY/volume.NAME.sock.
inline constexpr const char* kDefaultRuntimeDirectory = "/run/tiffind";
inline constexpr const char* kVolumeSocketPrefix = "volume.";
inline constexpr const char* kVolumeSocketSuffix = ".sock";
inline constexpr size_t kMaxVolumeNameBytes = 63;
inline constexpr size_t kHolderTextBytes = 64;
// Sequences, epochs and incarnations of content only grow, and are below this.
inline constexpr uint64_t kCounterLimit = uint64_t{1} << 62;
// Address spaces end below this, so that no sum of offset and length overflows.
inline constexpr uint64_t kMaxSpaceBytes = uint64_t{1} << 62;

// ---- The header of every message -----------------------------------------------------------------

enum class MessageType : uint8_t {
    client_hello = 1,
    hello_retry = 2,
    server_hello = 3,
    client_proof = 4,
    session_open = 16,
    session_opened = 17,
    session_refused = 18,
    path_join = 19,
    path_joined = 20,
    lease_request = 21,
    lease_reply = 22,
    session_close = 23,
    session_closed = 24,
    path_recover = 25,
    path_recovered = 26,
    probe = 32,
    probe_reply = 33,
    notice = 34,
    request = 64,
    response = 65,
};

namespace message_flag {
// The body is sealed: chunks of at most kSealedChunkBytes, each followed by its tag. Everything from
// session_open to notice is always sealed, request and response when the session encrypts; but not on a path of sdr, whose
// messages are then sealed as a whole.
inline constexpr uint16_t sealed = 1;
inline constexpr uint16_t all = sealed;
}  // namespace message_flag

inline constexpr uint32_t kSealedChunkBytes = 16384;
inline constexpr uint32_t kSealTagBytes = 16;

struct MessageHeader {
    uint32_t magic;
    uint8_t version;
    uint8_t type;         // MessageType
    uint16_t flags;       // message_flag
    uint32_t body_bytes;  // what follows this header, tags included
    uint32_t checksum;    // CRC32C of the header, this field as zero; and of a fixed part in clear
};
static_assert(sizeof(MessageHeader) == 16);

// ---- Handshake: rdma_blk/session/handshake.h --------------------------------------------------------

inline constexpr size_t kPublicKeyBytes = 32;  // X25519
inline constexpr size_t kProofBytes = 32;      // HMAC-SHA-512-256
inline constexpr size_t kCookieBytes = 32;     // BLAKE2b

namespace hello_flag {
inline constexpr uint16_t encrypt = 1;  // seal requests and responses, too
inline constexpr uint16_t reader = 2;  // the key is the volume's reader key: nothing may be changed
inline constexpr uint16_t all = encrypt | reader;
}  // namespace hello_flag

struct ClientHello {
    uint8_t lowest_version;  // of the protocol, that the client speaks
    uint8_t highest_version;
    uint16_t flags;  // hello_flag
    uint32_t reserved;
    char volume_name[kMaxVolumeNameBytes + 1];  // padded with NUL
    uint8_t public_key[kPublicKeyBytes];        // ephemeral
    uint8_t cookie[kCookieBytes];               // zero in the first hello
    uint8_t proof[kProofBytes];                 // that the client knows the key; zero in the first
};
static_assert(sizeof(ClientHello) == 168);

struct HelloRetry {
    uint8_t cookie[kCookieBytes];
};
static_assert(sizeof(HelloRetry) == 32);

struct ServerHello {
    uint8_t version;  // chosen
    uint8_t reserved0;
    uint16_t flags;  // accepted hello_flag
    uint32_t reserved;
    uint8_t server_uuid[16];
    uint8_t public_key[kPublicKeyBytes];
    uint8_t proof[kProofBytes];
};
static_assert(sizeof(ServerHello) == 88);

struct ClientProof {
    uint8_t client_uuid[16];
    uint8_t proof[kProofBytes];
};
static_assert(sizeof(ClientProof) == 48);

// ---- Sessions and paths -------------------------------------------------------------------------------

enum class SessionMode : uint8_t {
    read = 0,
    write = 1,
    // Reads content that does not change meanwhile: not opened while a client has the lease. While it has a connection
    // the lease is granted by force only, which fences it.
    read_steady = 2,
};

namespace open_flag {
inline constexpr uint8_t force = 1;  // take the lease from its holder
inline constexpr uint8_t all = force;
}  // namespace open_flag

// Opens a session, or resumes one in a new incarnation. Behind it: outstanding_count OutstandingEntry.
struct SessionOpen {
    uint8_t client_uuid[16];
    uint64_t session_id;     // 0: a new one
    uint64_t epoch;          // resumed: under which it held its lease; new: 0
    uint64_t next_sequence;  // all from here on will be sent in this incarnation; new: 1
    uint32_t incarnation;    // greater than all before; new: 1
    uint16_t slot_count;     // wanted: 1 to kMaxSlots
    uint16_t outstanding_count;
    uint8_t mode;   // SessionMode
    uint8_t flags;  // open_flag
    uint8_t reserved[6];
    char holder_text[kHolderTextBytes];  // padded with NUL
};
static_assert(sizeof(SessionOpen) == 120);

// A request of an earlier incarnation that the client still wants to know the outcome of. All others
// below next_sequence are settled for the client: they will never be sent again.
struct OutstandingEntry {
    uint64_t sequence;  // ascending
    uint16_t slot;
    uint8_t operation;  // OperationKind
    uint8_t reserved[5];
};
static_assert(sizeof(OutstandingEntry) == 16);

namespace session_flag {
inline constexpr uint16_t resumed = 1;    // the slots were kept: outcomes follow
inline constexpr uint16_t read_only = 2;  // the volume cannot be written
inline constexpr uint16_t offers_rc = 4;  // a path_join with PathTransport::rc will be heard
inline constexpr uint16_t inherits_unflushed = 8;  // with the lease: see lease_flag
// A server of an earlier version kept the content and not the durable words, which are lost.
inline constexpr uint16_t words_unknown = 16;
inline constexpr uint16_t all =
    resumed | read_only | offers_rc | inherits_unflushed | words_unknown;
}  // namespace session_flag

// Behind it: outstanding_count times a byte, the Outcome of each entry of the SessionOpen: not_executed
// (it will be executed when sent again), executed (the reply is kept), unknown.
struct SessionOpened {
    uint64_t session_id;
    uint64_t epoch;
    uint64_t content_incarnation;
    uint64_t empty_since_incarnation;
    uint64_t data_bytes;
    uint64_t control_bytes;
    uint64_t session_record_offset;  // in the control space: SessionRecord of this session
    uint8_t server_uuid[16];
    uint8_t volume_uuid[16];
    uint32_t incarnation;
    uint32_t transfer_bytes;  // at most kMaxTransferBytes
    uint32_t eager_bytes;
    uint32_t write_unit_bytes;
    uint32_t probe_interval_ms;
    uint32_t lease_timeout_ms;
    uint16_t slot_count;  // granted
    uint16_t outstanding_count;
    uint16_t flags;            // session_flag
    uint8_t durability;        // Durability
    uint8_t atomics_executor;  // 0: the server's processor, and no device beside it
};
static_assert(sizeof(SessionOpened) == 120);

enum class RefusalReason : uint8_t {
    held = 1,        // another client has the lease: holder_text
    fenced = 2,      // the session lost its lease for good
    no_session = 3,  // to resume; the volume may have lost its content
    stale_incarnation = 4,
    no_room = 5,  // sessions or slots: the server's limits
    read_only = 6,
    stopping = 7,
    malformed = 8,
    no_transport = 9,  // path_join: not offered
};

struct SessionRefused {
    uint64_t epoch;
    uint64_t content_incarnation;
    uint64_t empty_since_incarnation;
    uint64_t held_for_ms;  // since the holder was last heard of
    uint8_t reason;        // RefusalReason
    uint8_t reserved[7];
    char holder_text[kHolderTextBytes];
};
static_assert(sizeof(SessionRefused) == 104);

// Transports that a path may use. tcp: the connection itself, no parameters.
enum class PathTransport : uint8_t { tcp = 1, shm = 2, rc = 3, udp = 4, uc = 5 };

// Makes this connection, or what its parameters describe, one more path of a session. The parameters are
// the transport's own (queue pair numbers, keys; PathProof): they travel nowhere else. The connection that opened an incarnation is its
// path 0; of those that join it, each has a greater path_id than all before.
struct PathJoin {
    uint64_t session_id;
    uint32_t incarnation;
    uint16_t path_id;
    uint8_t transport;  // PathTransport
    uint8_t reserved0;
    uint16_t parameter_bytes;  // at most kMaxPathParametersBytes
    uint8_t reserved[6];
};
static_assert(sizeof(PathJoin) == 24);

struct PathJoined {
    uint64_t session_id;
    uint16_t path_id;
    uint8_t reason;  // RefusalReason; 0: joined
    uint8_t reserved0;
    uint16_t parameter_bytes;
    uint8_t reserved[2];
};
static_assert(sizeof(PathJoined) == 16);

// In the path_join of a new connection (tcp): proof that the client has opened the session's present incarnation. HMAC with the
// session secret (k_9) of the connection that did.
struct PathProof {
    uint8_t proof[kProofBytes];
};
static_assert(sizeof(PathProof) == 32);

namespace recover_flag {
inline constexpr uint8_t revoke =
    1;  // the path ends first: nothing that is sent on it is executed any more
inline constexpr uint8_t all = revoke;
}  // namespace recover_flag

// What became of requests that were sent on a path of the present incarnation which has failed, or is silent? Behind it:
// outstanding_count OutstandingEntry, requests of this incarnation.
struct PathRecover {
    uint64_t session_id;
    uint32_t incarnation;
    uint16_t path_id;  // of the silent path
    uint16_t outstanding_count;
    uint32_t number;  // of the question: returned
    uint8_t flags;    // recover_flag
    uint8_t reserved[3];
};
static_assert(sizeof(PathRecover) == 24);

// Behind it: outstanding_count times a byte, for each entry an Outcome: pending (its answer has been sent on this
// connection, or will be), or not_executed (it has not come yet: it is to be sent again).
struct PathRecovered {
    uint64_t session_id;
    uint32_t number;
    uint16_t outstanding_count;
    uint8_t
        reason;  // RefusalReason; 0: done. Otherwise nothing is known, and the path has perhaps not ended
    uint8_t reserved;
};
static_assert(sizeof(PathRecovered) == 16);

// ---- Parameters of a path of transport rc, on a connection that has a session -------------------------

// A queue pair, as its peer needs it.
struct QueuePairAddress {
    uint8_t gid[16];        // of its port; IPv4 mapped into IPv6
    uint32_t queue_pair;    // number, 24 bits
    uint32_t first_packet;  // sequence number of the first packet, 24 bits
    uint8_t mtu;            // 1 to 5: 256, 512, 1024, 2048, 4096 bytes
    uint8_t read_depth;     // reads and atomics of the peer's that it answers at once, at least 1
    uint8_t reserved[6];
};
static_assert(sizeof(QueuePairAddress) == 32);

// In path_join. Takes the place of an earlier queue pair beside this connection; before version 3, of the session.
struct RcPathOffer {
    QueuePairAddress client;
};
static_assert(sizeof(RcPathOffer) == 32);

enum class WindowKind : uint8_t {
    none = 0,     // closed: a reader's words
    data = 1,     // all of the data space
    control = 2,  // all of the control space, to read
    words = 3,    // of the control space, to write
    client = 4,   // the session's own part of the control space, to write
};

struct RcWindow {
    uint64_t address;       // of its first byte, for the queue pair
    uint64_t offset_bytes;  // in its address space
    uint64_t length_bytes;
    uint32_t key;
    uint8_t kind;    // WindowKind
    uint8_t writes;  // 1: writes and atomics, too
    uint8_t reserved[2];
};
static_assert(sizeof(RcWindow) == 32);

inline constexpr size_t kRcWindowCount = 4;

// In path_joined.
struct RcPathAnswer {
    QueuePairAddress server;
    RcWindow windows[kRcWindowCount];
};
static_assert(sizeof(RcPathAnswer) == 160);
static_assert(sizeof(RcPathAnswer) <= kMaxPathParametersBytes);

// ---- Parameters of a path of transport udp, on a connection that has a session ------------------------

inline constexpr uint32_t kMinDatagramPayloadBytes = 64;
inline constexpr uint32_t kMaxDatagramPayloadBytes = 65443;
inline constexpr uint16_t kMaxDatagramMessages = 1024;

// How what is lost of messages on a path of udp or uc is repaired.
enum class SdrScheme : uint8_t {
    automatic = 0,  // by what is measured
    selective_repeat = 1,
    selective_repeat_nack = 2,
    erasure_xor = 3,
    erasure_mds = 4,
};

constexpr bool is_erasure_code(SdrScheme scheme) {
    return scheme == SdrScheme::erasure_xor || scheme == SdrScheme::erasure_mds;
}

inline constexpr uint8_t kMaxSdrDataChunks = 64;
inline constexpr uint8_t kMaxSdrParityChunks = 16;

struct SdrRepair {
    uint8_t scheme;         // SdrScheme
    uint8_t data_chunks;    // k of the erasure codes, 1 to kMaxSdrDataChunks; of all others 0
    uint8_t parity_chunks;  // m, 1 to kMaxSdrParityChunks and at most k; of all others 0
};
static_assert(sizeof(SdrRepair) == 3);

// One end of a reliable SDR connection over UDP (docs/sdr.md). In path_join the client's, and in path_joined the
// server's, whose numbers may be smaller than those asked for, and hold for both then. Addresses are those of the
// connection that the messages travel on; keys come from its handshake (k_5, k_6).
struct DatagramPathEnd {
    uint32_t connection_id;  // of datagrams to this end
    uint16_t port;
    uint16_t message_count;  // in flight in each direction: a power of two
    uint32_t packet_bytes;   // payload of a datagram, without the headers of docs/sdr.md
    uint32_t message_bytes;  // of the largest message, tag included; at least kDatagramMessageBytes
    uint32_t receive_buffer_bytes;  // of this end's socket
    uint16_t landing_slots;  // messages that may be on their way to this end, 1 to message_count
    SdrRepair repair;        // the client's: of what the server sends, too
    uint8_t reserved[3];
};
static_assert(sizeof(DatagramPathEnd) == 28);
static_assert(sizeof(DatagramPathEnd) <= kMaxPathParametersBytes);

// ---- Parameters of a path of transport uc, on a connection that has a session -------------------------

inline constexpr uint32_t kMinUcPacketBytes = 256;  // MTUs of queue pairs: powers of two
inline constexpr uint32_t kMaxUcPacketBytes = 4096;
inline constexpr uint16_t kMaxUcPathMessages = 64;
inline constexpr uint32_t kMinUcPathReceives = 64;
inline constexpr uint32_t kMaxUcPathReceives = 65536;
// In front of each message on such a path: SipHash-2-4, as packets have no tags there.
inline constexpr uint32_t kUcMessageTagBytes = 8;

// One end of a reliable SDR connection over two Unreliable Connected queue pairs (docs/sdr.md). In path_join the client's,
// and in path_joined the server's, whose message_count and packet_bytes may be smaller, and hold for both then. Keys are
// those of a path of udp.
struct UcPathEnd {
    uint32_t connection_id;  // of datagrams to this end
    uint32_t packet_bytes;   // of a packet, at most the smaller MTU: a power of two
    uint32_t message_bytes;  // likewise: kUcPathMessageBytes, or kSealedPathMessageBytes
    uint32_t receive_depth;  // packets that may have come to this end and not been looked at
    uint16_t message_count;  // in flight in each direction: a power of two
    uint16_t landing_slots;  // messages that may be on their way to this end, 1 to message_count
    SdrRepair repair;        // as in DatagramPathEnd
    uint8_t reserved;
    uint64_t arenas[2];  // addresses of this end's, of even and odd generations
    QueuePairAddress data;
    QueuePairAddress control;
};
static_assert(sizeof(UcPathEnd) == 104);
static_assert(sizeof(UcPathEnd) <= kMaxPathParametersBytes);

// Parameters of a path_joined for shm; the path_join has none. With them come (SCM_RIGHTS) two descriptors:
// the memory of the data, then that of the control space. Both are sealed against shrinking.
struct ShmParameters {
    uint64_t data_bytes;     // to be mapped
    uint64_t control_bytes;  // may only be read
    uint8_t is_writable;     // 1: the data may be changed, as the session has the lease
    uint8_t reserved[7];
};
static_assert(sizeof(ShmParameters) == 24);
inline constexpr size_t kShmDescriptors = 2;

// A reader becomes the writer.
struct LeaseRequest {
    uint64_t session_id;
    uint32_t incarnation;
    uint8_t flags;  // open_flag
    uint8_t reserved[3];
};
static_assert(sizeof(LeaseRequest) == 16);

namespace lease_flag {
// Earlier writers may have left content that no flush has covered: it is the new writer's to flush.
inline constexpr uint8_t inherits_unflushed = 1;
inline constexpr uint8_t held_by_reader =
    2;  // refused: holder_text is that of a session that reads steadily
inline constexpr uint8_t all = inherits_unflushed | held_by_reader;
}  // namespace lease_flag

struct LeaseReply {
    uint64_t epoch;
    uint8_t reason;  // RefusalReason; 0: granted
    uint8_t flags;   // lease_flag
    uint8_t reserved[6];
    char holder_text[kHolderTextBytes];
};
static_assert(sizeof(LeaseReply) == 80);

namespace close_flag {
inline constexpr uint32_t all_flushed =
    1;  // by the writer: nothing is left that no flush has covered
inline constexpr uint32_t all = all_flushed;
}  // namespace close_flag

// Gives the lease and the slots back; answered by a session_closed with the same content.
struct SessionClose {
    uint64_t session_id;
    uint32_t incarnation;
    uint32_t flags;  // close_flag
};
static_assert(sizeof(SessionClose) == 16);

// ---- Liveness -------------------------------------------------------------------------------------------

struct Probe {
    uint64_t id;  // returned by the reply
    uint64_t session_id;
    uint64_t epoch;
    uint64_t content_incarnation;  // reply: the server's; probe: 0
    uint32_t incarnation;
    uint32_t reserved;
};
static_assert(sizeof(Probe) == 40);

enum class NoticeReason : uint8_t { stopping = 1, fenced = 2, resized = 3, deleted = 4 };

struct Notice {
    uint64_t epoch;
    uint64_t data_bytes;
    uint8_t reason;  // NoticeReason
    uint8_t reserved[7];
};
static_assert(sizeof(Notice) == 24);

// ---- Requests and responses -------------------------------------------------------------------------------

namespace request_flag {
// Only the kept reply is wanted; when there is none, since it was never executed, it must not be any
// more: the answer is not_executed (ecanceled). No payload.
inline constexpr uint8_t reply_only = 1;
inline constexpr uint8_t has_checksum = 2;  // payload_checksum counts
inline constexpr uint8_t all = reply_only | has_checksum;
}  // namespace request_flag

// Payload: write: the data, length_bytes of it; flush: length_bytes / 16 FlushRange; others: none. A request
// with `after` is refused when one of those from pending_since to `after` was.
struct Request {
    uint64_t session_id;
    uint64_t epoch;
    uint64_t sequence;  // 1, 2, ... of the session, in the order of sending; ascending in a slot
    uint64_t after;     // takes effect once all requests up to here have; 0: at any time
    uint64_t pending_since;  // with `after`: the smallest sequence that the client waits for
    uint64_t offset_bytes;
    uint64_t operand;
    uint64_t compare;
    uint32_t incarnation;
    uint32_t length_bytes;      // of a read or write, or of the flush's ranges
    uint32_t payload_checksum;  // CRC32C of the payload
    uint16_t slot;
    uint8_t operation;  // OperationKind
    uint8_t space;      // AddressSpace
    uint8_t flags;      // request_flag
    uint8_t reserved[7];
};
static_assert(sizeof(Request) == 88);

struct FlushRange {
    uint64_t offset_bytes;
    uint64_t length_bytes;
};
static_assert(sizeof(FlushRange) == 16);

namespace response_flag {
inline constexpr uint8_t has_checksum = 1;
inline constexpr uint8_t all = has_checksum;
}  // namespace response_flag

// Payload: the data of an executed read; others: none.
struct Response {
    uint64_t session_id;
    uint64_t epoch;  // the volume's now
    uint64_t sequence;
    uint64_t value;  // compare_swap, fetch_add: the old value; flush: the content incarnation
    uint32_t incarnation;
    uint32_t payload_bytes;
    uint32_t payload_checksum;
    uint16_t slot;
    uint16_t error;     // errno number; 0: executed
    uint8_t operation;  // OperationKind
    uint8_t outcome;    // Outcome, not pending
    uint8_t flags;      // response_flag
    uint8_t reserved[5];
};
static_assert(sizeof(Response) == 56);

// What a message in datagrams must have room for: the largest request, or response.
inline constexpr uint32_t kDatagramMessageBytes =
    sizeof(MessageHeader) + sizeof(Request) + kMaxTransferBytes;
static_assert(sizeof(Response) <= sizeof(Request));
inline constexpr uint32_t kUcPathMessageBytes = kUcMessageTagBytes + kDatagramMessageBytes;
// On a path of either kind whose connection encrypts.
inline constexpr uint32_t kSealedPathMessageBytes = kSealTagBytes + kDatagramMessageBytes;

}  // namespace tiffin::rdma_blk::wire
