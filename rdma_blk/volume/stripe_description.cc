// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/volume/stripe_description.h"

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/hexadecimal.h"

namespace tiffin::rdma_blk {
namespace {

uint32_t checksum_of(const StripeDescription& description) {
    StripeDescription copy = description;
    copy.state = 0;
    copy.checksum = 0;
    return host::crc32c(0, &copy, sizeof(copy));
}

bool is_same(const StripeMember& one, const StripeMember& other) {
    return std::memcmp(one.server_uuid, other.server_uuid, 16) == 0 &&
           std::memcmp(one.volume_uuid, other.volume_uuid, 16) == 0;
}

// How the volume was made: by the names that were given, as far as they are known.
std::string layout_text(Span<const StripeFinding> findings, const StripeDescription& description) {
    std::string text;
    for (uint16_t i = 0; i < description.server_count; ++i) {
        const StripeMember& member = description.members[i];
        const StripeFinding* known = nullptr;
        for (const StripeFinding& finding : findings) {
            known = is_same(finding.member, member) ? &finding : known;
        }
        text += i == 0 ? "; it consists of " : ", ";
        text += known != nullptr ? known->name
                                 : "the server of the volume with UUID " +
                                       to_hexadecimal(ByteSpan(member.volume_uuid, 16));
    }
    text += description.server_count > 1 ? ", in this order, with stripe=" : ", alone";
    return text + (description.server_count > 1 ? std::to_string(description.stripe_bytes) : "");
}

// What is wrong with a formed description itself, whatever the other servers say.
Result<void> check_formed(Span<const StripeFinding> findings, uint32_t index, uint64_t stripe_bytes,
                          std::string& problem) {
    const StripeFinding& finding = findings[index];
    const size_t server_count = findings.size();
    const StripeDescription& description = finding.description;
    if (description.version != kStripeVersion) {
        problem = std::string("the volume on ") + finding.name + " was made by a newer version";
        return Error::eopnotsupp;
    }
    if (description.checksum != checksum_of(description) || description.server_count == 0 ||
        description.server_count > kMaxServers ||
        description.server_index >= description.server_count ||
        !is_stripe_size(description.stripe_bytes)) {
        problem = std::string("the description of the volume on ") + finding.name + " is damaged";
        return Error::eio;
    }
    if (description.server_count != server_count) {
        problem = std::string("the volume on ") + finding.name + " is one of " +
                  std::to_string(description.server_count) + ", and " +
                  std::to_string(server_count) +
                  (server_count == 1 ? " server is" : " servers are") +
                  " given: name all of them, in their order" + layout_text(findings, description);
        return Error::einval;
    }
    if (description.server_index != index) {
        problem = std::string(finding.name) + " is server " +
                  std::to_string(description.server_index + 1) + " of the volume, not server " +
                  std::to_string(index + 1) + ": name the servers in their order" +
                  layout_text(findings, description);
        return Error::einval;
    }
    if (stripe_bytes != 0 && server_count > 1 && description.stripe_bytes != stripe_bytes) {
        problem = "the volume was made with stripe=" + std::to_string(description.stripe_bytes) +
                  ", not " + std::to_string(stripe_bytes) + ": leave stripe= out" +
                  layout_text(findings, description);
        return Error::einval;
    }
    return {};
}

// Whether all servers are those that a formed description names, with what they had then.
Result<void> check_members(Span<const StripeFinding> findings, const StripeFinding& formed,
                           std::string& problem) {
    for (size_t i = 0; i < findings.size(); ++i) {
        const StripeMember& expected = formed.description.members[i];
        if (!is_same(findings[i].member, expected)) {
            problem = std::string("the volume on ") + findings[i].name +
                      " does not belong to the one on " + formed.name +
                      ": it is another server, or the volume was made anew" +
                      layout_text(findings, formed.description);
            return Error::einval;
        }
        if (!is_formed(findings[i].description) &&
            findings[i].member.empty_since_incarnation != expected.empty_since_incarnation) {
            problem = std::string(findings[i].name) + " has lost its content, " + formed.name +
                      " has not: make the volume anew on all servers";
            return Error::eio;
        }
        if (is_formed(findings[i].description) &&
            findings[i].description.stripe_bytes != formed.description.stripe_bytes) {
            problem = std::string(findings[i].name) + " and " + formed.name +
                      " disagree about the stripe: they are not one volume";
            return Error::einval;
        }
    }
    return {};
}

// Content may be there, and none of the servers says how it is striped.
Result<void> check_unknown(Span<const StripeFinding> findings, uint64_t stripe_bytes,
                           bool may_write, std::string& problem) {
    const StripeFinding* unknown = nullptr;
    for (const StripeFinding& finding : findings) {
        unknown = finding.words_unknown ? &finding : unknown;
    }
    if (unknown == nullptr || findings.size() == 1 || (!may_write && stripe_bytes != 0)) {
        return {};
    }
    problem = std::string("the volume on ") + unknown->name +
              " is from a version of tiffind that did not keep on disk how it is striped";
    if (may_write) {
        problem +=
            ", so it can only be read: mount it with -o ro and stripe=SIZE, copy what it has to a "
            "new volume";
        return Error::erofs;
    }
    problem +=
        ": name the servers in the order of its making, with the stripe=SIZE it was made with "
        "(256K "
        "unless one was given)";
    return Error::einval;
}

}  // namespace

bool is_formed(const StripeDescription& description) {
    return description.magic == kStripeMagic &&
           description.state == static_cast<uint64_t>(StripeState::formed);
}

Result<void> check_members(Span<const StripeFinding> findings, std::string& problem) {
    for (size_t i = 0; i < findings.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
            if (is_same(findings[i].member, findings[k].member)) {
                problem = std::string(findings[k].name) + " and " + findings[i].name +
                          " are the same server: a comma stands between the servers that a volume "
                          "is striped over, and a plus between the links to one";
                return Error::einval;
            }
        }
    }
    return {};
}

Result<StripeVerdict> judge_stripe(Span<const StripeFinding> findings, uint64_t stripe_bytes,
                                   bool may_write, std::string& problem) {
    TIFFIN_ASSERT(!findings.empty() && findings.size() <= kMaxServers);
    TRY(check_members(findings, problem));
    StripeVerdict verdict;
    verdict.complete = true;
    verdict.stripe_bytes = stripe_bytes != 0 ? stripe_bytes : kDefaultStripeBytes;
    for (size_t i = 0; i < findings.size(); ++i) {
        if (!is_formed(findings[i].description)) {
            verdict.complete = false;
            continue;
        }
        TRY(check_formed(findings, static_cast<uint32_t>(i), stripe_bytes, problem));
    }
    for (size_t i = 0; i < findings.size(); ++i) {
        if (!is_formed(findings[i].description)) {
            continue;
        }
        TRY(check_members(findings, findings[i], problem));
        verdict.stripe_bytes = findings[i].description.stripe_bytes;
        verdict.is_known = true;
    }
    if (!verdict.is_known) {
        TRY(check_unknown(findings, stripe_bytes, may_write, problem));
    }
    return verdict;
}

void make_stripe_description(Span<const StripeFinding> findings, uint32_t index,
                             uint64_t stripe_bytes, StripeDescription& description) {
    std::memset(&description, 0, sizeof(description));
    description.magic = kStripeMagic;
    description.state = static_cast<uint64_t>(StripeState::forming);
    description.version = kStripeVersion;
    description.server_count = static_cast<uint16_t>(findings.size());
    description.server_index = static_cast<uint16_t>(index);
    description.stripe_bytes = stripe_bytes;
    for (size_t i = 0; i < findings.size(); ++i) {
        description.members[i] = findings[i].member;
    }
    description.checksum = checksum_of(description);
}

}  // namespace tiffin::rdma_blk
