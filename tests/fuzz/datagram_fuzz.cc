// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Datagrams as they come to a connection: of anybody, and of the peer, repeated, late and cut. Only the peer's are let
// in, whole and once.
//
// Input: steps: a byte, what it says; a byte of size, bytes.
#include <cstring>
#include <map>
#include <set>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/udp/datagram.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::rdma_blk::sdr {
namespace {

enum Step : uint8_t { of_anybody, of_the_peer, again, cut, changed, skip, step_count };

constexpr unsigned char kKey[kTagKeyBytes] = {1, 2, 3};
constexpr uint32_t kConnection = 7;
constexpr uint16_t kChannel = 1;

class Receiver {
  public:
    void step(fuzz::Bytes& bytes) {
        const uint8_t kind = bytes.byte() % step_count;
        const fuzz::Input given = bytes.take_bytes(bytes.byte());
        switch (kind) {
            case of_anybody:
                check(given);
                break;
            case of_the_peer:
                seal(given);
                check(last_);
                break;
            case again:
                check(last_);
                break;
            case cut:
                check(fuzz::Input(last_.begin(),
                                  last_.begin() + static_cast<ptrdiff_t>(last_.size() / 2)));
                break;
            case changed: {
                fuzz::Input other = last_;
                for (size_t i = 0; i < given.size() && i < other.size(); i++) {
                    other[i] ^= given[i];
                }
                check(other);
                break;
            }
            default:  // so many get lost
                for (size_t i = 0; i < given.size(); i++) {
                    (void)sealer_.seal(PacketKind::data, 0);
                }
        }
    }

  private:
    void seal(const fuzz::Input& given) {
        fuzz::Input body = given.empty() ? fuzz::Input{0} : given;
        const auto kind = static_cast<PacketKind>(1 + body[0] % 5);
        const uint64_t number = sealer_.next_number();
        const DatagramHeader header = sealer_.seal(kind, host::crc32c(0, body.data(), body.size()));
        const auto* head = reinterpret_cast<const unsigned char*>(&header);
        last_.assign(head, head + sizeof(header));
        last_.insert(last_.end(), body.begin(), body.end());
        sealed_[number] = last_;
    }

    void check(const fuzz::Input& datagram) {
        auto opened = opener_.open(ByteSpan(datagram.data(), datagram.size()));
        if (!opened.ok()) {
            return;
        }
        // A tag of 64 bits is not guessed here.
        auto found = sealed_.find(opened->packet_number);
        TIFFIN_ASSERT(found != sealed_.end() && found->second == datagram);
        TIFFIN_ASSERT(opened_.insert(opened->packet_number).second);
        TIFFIN_ASSERT(opened->body.size() == datagram.size() - sizeof(DatagramHeader));
    }

    DatagramSealer sealer_{kKey, kConnection, kChannel};
    DatagramOpener opener_{kKey, kConnection, kChannel};
    fuzz::Input last_;
    std::map<uint64_t, fuzz::Input> sealed_;
    std::set<uint64_t> opened_;
};

}  // namespace
}  // namespace tiffin::rdma_blk::sdr

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    using namespace rdma_blk::sdr;
    const Input plain = {of_the_peer, 4, 0,    1, 2, 3, of_the_peer, 2,           3, 4,
                         again,       0, skip, 3, 1, 1, 1,           of_the_peer, 1, 2};
    const Input bad = {of_the_peer, 3, 1,          2, 3, cut, 0, changed, 4,     0, 0,
                       0,           1, of_anybody, 4, 7, 0,   0, 0,       again, 0};
    return {plain, bad};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin;
    fuzz::Bytes bytes(data, size);
    rdma_blk::sdr::Receiver receiver;
    while (bytes.left() > 0) {
        receiver.step(bytes);
    }
    return 0;
}
