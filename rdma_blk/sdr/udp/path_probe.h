// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How large a datagram the path takes: Datagram Packetization Layer Path MTU Discovery (RFC 8899), which asks nobody but
// the peer. Sans I/O.
//
// A probe is a datagram of the size in question, which the peer answers with a small one. Three that are not answered say
// that the size does not fit. The largest that does is found by halving between what was answered and what was not, to
// within kPathProbeStepBytes, and looked for again after kPathRaiseNs, since paths become wider, too. Sizes are those of
// UDP payloads, with the datagram header.
//
//     base       what is expected of any path is tried, then the size that is in use; if that does not get through, the least
//     searching  it is known, larger ones are tried
//     complete   nothing to do until kPathRaiseNs
//     error      not even the smallest gets through: tried again every kPathProbeTimeoutNs
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk::sdr {

class PathProbe {
  public:
    enum class State : uint8_t { base, searching, complete, error };

    // `least_bytes`: below that, a path is not looked into. `base_bytes`: what is expected of any path (RFC 8899, 5.1.2:
    // 1200). `used_bytes`: of the datagrams that are sent now; tried first. `most_bytes`: the largest that is of interest.
    // least <= base <= used <= most.
    PathProbe(uint32_t least_bytes, uint32_t base_bytes, uint32_t used_bytes, uint32_t most_bytes);

    struct Probe {
        uint32_t datagram_bytes = 0;
        uint32_t number = 0;
    };
    // Whether a probe is to be sent now.
    bool next_probe(uint64_t now_ns, Probe& probe);
    // The peer has answered that probe. Others than the last one's size are late, and not believed.
    void on_reply(uint64_t now_ns, const Probe& probe);
    // Datagrams of the size in use have come without having been cut in pieces, which proves as much as an answer does, and
    // more surely where much is lost. Not believed when it is known not to fit: they are cut then.
    void on_used_size_came(uint64_t now_ns);
    // Nothing gets through that did before: starts from the beginning. Not more often than it can find out.
    void on_black_hole(uint64_t now_ns);
    // When next_probe() has one; ~0 does not occur.
    uint64_t next_ns() const { return due_ns_; }

    State state() const { return state_; }
    // The largest that was answered; 0: none yet, or none any more.
    uint32_t confirmed_bytes() const { return confirmed_bytes_; }
    // Whether the size in use is known not to fit.
    bool is_too_narrow() const { return narrow_bytes_ <= used_bytes_ || stays_narrow_; }

  private:
    void choose(uint64_t now_ns);

    uint32_t least_bytes_;
    uint32_t base_bytes_;
    uint32_t used_bytes_;
    uint32_t most_bytes_;
    State state_ = State::base;
    uint32_t confirmed_bytes_ = 0;
    uint32_t
        narrow_bytes_;  // the smallest that does not fit, as far as is known: most_bytes_ + 1 if none
    // The size in use did not fit before a wider path was looked for: believed until it has got through.
    bool stays_narrow_ = false;
    uint32_t size_bytes_;    // of the probes that are sent now
    uint32_t attempts_ = 0;  // of that size
    uint32_t number_ = 0;
    uint64_t due_ns_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
