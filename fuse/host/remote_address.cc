// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/remote_address.h"

#include <algorithm>
#include <charconv>

#include <map>
#include <set>
#include "fuse/host/size_text.h"
#include "rdma_blk/transport/busy_poll.h"
#include "rdma_blk/volume/stripe_map.h"

namespace tiffin::fuse {
namespace {

constexpr const char* kForm = "write tiffin://HOST[:PORT]/VOLUME";
constexpr size_t kMaxHostBytes = 253;
constexpr uint64_t kMaxDropPpm = 500'000;
constexpr size_t kMaxVolumeNameBytes = 63;

bool parse_number(std::string_view text, uint64_t greatest, uint64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() && !text.empty() &&
           number <= greatest;
}

bool is_host_character(char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '.' || character == '_' ||
           character == '-';
}

std::optional<Problem> set_port(std::string_view text, rdma_blk::RemoteAddress& server) {
    uint64_t port = 0;
    if (!parse_number(text, UINT16_MAX, port) || port == 0) {
        return Problem{"\"" + std::string(text) + "\" is not a port: write a number up to 65535"};
    }
    server.port = static_cast<uint16_t>(port);
    return std::nullopt;
}

// HOST, HOST:PORT, [IPv6] or [IPv6]:PORT.
OrProblem<rdma_blk::RemoteAddress> parse_server(std::string_view text) {
    rdma_blk::RemoteAddress server;
    std::string_view rest;
    if (text.starts_with('[')) {
        const size_t end = text.find(']');
        if (end == std::string_view::npos ||
            text.substr(1, end - 1).find_first_not_of("0123456789abcdefABCDEF:.") !=
                std::string_view::npos) {
            return Problem{
                "\"" + std::string(text) +
                "\" is not an address: write an IPv6 address in brackets, such as [::1]"};
        }
        server.host = text.substr(1, end - 1);
        rest = text.substr(end + 1);
    } else {
        const size_t colon = text.find(':');
        server.host = text.substr(0, colon);
        rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon);
        if (rest.find(':', 1) != std::string_view::npos) {
            return Problem{"\"" + std::string(text) +
                           "\" has several colons: write an IPv6 address in brackets, such as "
                           "[::1]:4847"};
        }
        for (const char character : server.host) {
            if (!is_host_character(character)) {
                return Problem{"\"" + server.host + "\" is not the name of a host"};
            }
        }
    }
    if (server.host.empty() || server.host.size() > kMaxHostBytes) {
        return Problem{std::string("the name of a host is missing or too long: ") + kForm};
    }
    if (rest.empty()) {
        return server;
    }
    if (!rest.starts_with(':')) {
        return Problem{"\"" + std::string(text) + "\" is not HOST or HOST:PORT"};
    }
    if (std::optional<Problem> problem = set_port(rest.substr(1), server)) {
        return *problem;
    }
    return server;
}

// SERVER+SERVER...: links to one server. `named`: what was named before, and these from here on.
OrProblem<rdma_blk::RemoteAddress> parse_links(std::string_view text,
                                               std::set<std::string>& named) {
    std::optional<rdma_blk::RemoteAddress> server;
    for (size_t plus = 0; plus != std::string_view::npos; text.remove_prefix(plus + 1)) {
        plus = text.find('+');
        OrProblem<rdma_blk::RemoteAddress> link = parse_server(text.substr(0, plus));
        if (!link.ok()) {
            return link.problem();
        }
        if (!named.insert(server_name(*link)).second) {
            return Problem{server_name(*link) + " is named twice"};
        }
        if (!server) {
            server = *link;
        } else {
            server->more_links.push_back({link->host, link->port});
        }
        if (plus == std::string_view::npos) {
            break;
        }
    }
    if (server->more_links.size() >= rdma_blk::kMaxLinks) {
        return Problem{"there are at most 8 links to a server"};
    }
    return *server;
}

// TRANSPORT, or one for each link: TRANSPORT+TRANSPORT...
std::optional<Problem> set_transport(std::string_view value, RemoteVolumeAddress& address) {
    std::vector<rdma_blk::TransportChoice> choices;
    for (size_t plus = 0; plus != std::string_view::npos;
         value.remove_prefix(plus == std::string_view::npos ? 0 : plus + 1)) {
        plus = value.find('+');
        const std::string word(value.substr(0, plus));
        if (!rdma_blk::parse_transport_choice(word.c_str(), choices.emplace_back())) {
            return Problem{"transport=" + word + " is unknown: auto, tcp, shm, rc or sdr"};
        }
    }
    if (choices.size() > 1 &&
        std::ranges::count(choices, rdma_blk::TransportChoice::automatic) > 0) {
        return Problem{
            "transport=auto chooses for all links: name a transport for each, or leave it "
            "to auto alone"};
    }
    for (rdma_blk::RemoteAddress& server : address.servers) {
        const size_t links = 1 + server.more_links.size();
        if (choices.size() > 1 && choices.size() != links) {
            return Problem{"transport= names " + std::to_string(choices.size()) +
                           " transports, and the address of " + server_name(server) + " has " +
                           std::to_string(links) + (links == 1 ? " link" : " links") +
                           ": name one for all, or one for each"};
        }
        server.transport = choices[0];
        for (size_t link = 1; link < choices.size(); link++) {
            server.more_links[link - 1].transport = choices[link];
        }
    }
    return std::nullopt;
}

std::optional<Problem> set_option(std::string_view name, std::string_view value,
                                  RemoteVolumeAddress& address) {
    const std::string text(value);
    if (name == "transport") {
        return set_transport(value, address);
    } else if (name == "sdr_scheme") {
        for (rdma_blk::RemoteAddress& server : address.servers) {
            if (!rdma_blk::parse_sdr_scheme(value, server.sdr)) {
                return Problem{"sdr_scheme=" + text +
                               " is unknown: auto, sr, nack, xor or mds, of the last two also with "
                               "k (1 to 64) and m (1 to 16, at most k), such as mds:32:8"};
            }
        }
    } else if (name == "sdr_carrier") {
        rdma_blk::SdrCarrier carrier{};
        if (!rdma_blk::parse_sdr_carrier(text.c_str(), carrier)) {
            return Problem{"sdr_carrier=" + text + " is unknown: udp or uc"};
        }
        for (rdma_blk::RemoteAddress& server : address.servers) {
            server.sdr.carrier = carrier;
        }
    } else if (name == "sdr_drop_ppm") {
        uint64_t drop_ppm = 0;
        if (!parse_number(value, kMaxDropPpm, drop_ppm)) {
            return Problem{"sdr_drop_ppm=" + text + " is not a number up to 500000"};
        }
        for (rdma_blk::RemoteAddress& server : address.servers) {
            server.sdr.drop_ppm = static_cast<uint32_t>(drop_ppm);
        }
    } else if (name == "links") {
        if (value != "standby" && value != "spread") {
            return Problem{"links=" + text + " is unknown: standby or spread"};
        }
        for (rdma_blk::RemoteAddress& server : address.servers) {
            server.link_policy =
                value == "spread" ? rdma_blk::LinkPolicy::spread : rdma_blk::LinkPolicy::standby;
        }
    } else if (name == "runtime_directory") {
        if (!value.starts_with('/')) {
            return Problem{"runtime_directory= wants an absolute path, such as /run/tiffind"};
        }
        for (rdma_blk::RemoteAddress& server : address.servers) {
            server.runtime_directory = text;
        }
    } else if (name == "stripe") {
        OrProblem<uint64_t> size = parse_size(value);
        if (!size.ok()) {
            return size.problem();
        }
        if (!rdma_blk::is_stripe_size(*size)) {
            return Problem{"stripe=" + text + " is not possible: a power of two from 4K to 1G"};
        }
        address.stripe_bytes = *size;
    } else if (name == "key_file") {
        if (!value.starts_with('/')) {
            return Problem{"key_file= wants an absolute path, such as key_file=/etc/tiffin/a.key"};
        }
        address.key_file = value;
    } else if (name == "timeout_s") {
        if (!parse_number(value, kMaxRemoteTimeoutSeconds, address.timeout_s)) {
            return Problem{"timeout_s=" + text + " is not a number of seconds up to 1000000"};
        }
    } else if (name == "busy_poll_us") {
        uint64_t limit_us = 0;
        if (!parse_number(value, rdma_blk::BusyPoll::kMaxUs, limit_us)) {
            return Problem{"busy_poll_us=" + text + " is not a number of microseconds up to 1000"};
        }
        address.busy_poll_us = static_cast<uint32_t>(limit_us);
    } else if (name == "encrypt") {
        if (value != "yes" && value != "no") {
            return Problem{"encrypt=" + text + " is unknown: yes or no"};
        }
        address.encrypt = value == "yes";
    } else {
        return Problem{
            "\"" + std::string(name) +
            "\" is not an option of a remote volume: transport, sdr_scheme, sdr_carrier, "
            "sdr_drop_ppm, links, runtime_directory, stripe, key_file, timeout_s, busy_poll_us or "
            "encrypt"};
    }
    return std::nullopt;
}

std::optional<Problem> set_options(std::string_view text, RemoteVolumeAddress& address) {
    std::map<std::string_view, std::string_view> given;
    while (!text.empty()) {
        const size_t end = text.find('&');
        const std::string_view word = text.substr(0, end);
        text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
        const size_t equals = word.find('=');
        if (equals == std::string_view::npos || equals + 1 == word.size()) {
            return Problem{"\"" + std::string(word) +
                           "\" wants a value: " + std::string(word.substr(0, equals)) + "=..."};
        }
        const auto [earlier, is_new] = given.emplace(word.substr(0, equals), word);
        if (!is_new && earlier->second != word) {
            return Problem{"\"" + std::string(earlier->second) + "\" and \"" + std::string(word) +
                           "\" contradict each other: leave one of them out"};
        }
        if (std::optional<Problem> problem =
                set_option(word.substr(0, equals), word.substr(equals + 1), address)) {
            return problem;
        }
    }
    return std::nullopt;
}

std::optional<Problem> set_volume(std::string_view name, RemoteVolumeAddress& address) {
    if (name.empty()) {
        return Problem{std::string("the name of the volume is missing: ") + kForm};
    }
    // A name is part of the names of files: of its key, of the server's state.
    bool is_name = name.size() <= kMaxVolumeNameBytes && name != "." && name != "..";
    for (const char character : name) {
        is_name = is_name && is_host_character(character);
    }
    if (!is_name) {
        return Problem{"\"" + std::string(name) +
                       "\" is not the name of a volume: at most 63 of a-z, A-Z, 0-9, \".\", \"_\" "
                       "and \"-\""};
    }
    address.volume = name;
    return std::nullopt;
}

}  // namespace

OrProblem<RemoteVolumeAddress> parse_remote_address(std::string_view text) {
    if (!text.starts_with("//")) {
        return Problem{std::string("a remote volume begins with tiffin://: ") + kForm};
    }
    text.remove_prefix(2);
    const size_t question = text.find('?');
    const std::string_view options =
        question == std::string_view::npos ? std::string_view() : text.substr(question + 1);
    text = text.substr(0, question);
    const size_t slash = text.find('/');
    if (slash == std::string_view::npos) {
        return Problem{std::string("the name of the volume is missing: ") + kForm};
    }
    RemoteVolumeAddress address;
    if (std::optional<Problem> problem = set_volume(text.substr(slash + 1), address)) {
        return *problem;
    }
    std::string_view hosts = text.substr(0, slash);
    std::set<std::string> named;
    while (true) {
        const size_t comma = hosts.find(',');
        OrProblem<rdma_blk::RemoteAddress> server = parse_links(hosts.substr(0, comma), named);
        if (!server.ok()) {
            return server.problem();
        }
        address.servers.push_back(*server);
        if (comma == std::string_view::npos) {
            break;
        }
        hosts.remove_prefix(comma + 1);
    }
    if (address.servers.size() > rdma_blk::kMaxServers) {
        return Problem{"a volume has at most 16 servers"};
    }
    if (std::optional<Problem> problem = set_options(options, address)) {
        return *problem;
    }
    for (const rdma_blk::RemoteAddress& server : address.servers) {
        if (!server.more_links.empty() && !rdma_blk::may_have_several_links(server)) {
            return Problem{
                "several links to a server (HOST+HOST) need transport=tcp, rc, or sdr over UDP; of "
                "these, tcp and sdr go together (transport=sdr+tcp)"};
        }
        if (server.link_policy == rdma_blk::LinkPolicy::spread &&
            server.transport == rdma_blk::TransportChoice::rc) {
            return Problem{"links=spread needs transport=tcp or sdr: rc uses one link at a time"};
        }
    }
    if (address.stripe_bytes != 0 && address.servers.size() == 1) {
        return Problem{"stripe= is for several servers: tiffin://HOST,HOST/VOLUME"};
    }
    return address;
}

std::string server_name(const rdma_blk::RemoteAddress& server) {
    return rdma_blk::RemoteAddress::Link{server.host, server.port}.text();
}

OrProblem<rdma_blk::RemoteAddress::Link> parse_link_address(std::string_view text) {
    const OrProblem<rdma_blk::RemoteAddress> server = parse_server(text);
    if (!server.ok()) {
        return server.problem();
    }
    return rdma_blk::RemoteAddress::Link{server->host, server->port};
}

}  // namespace tiffin::fuse
