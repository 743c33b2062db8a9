// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/link_cutter.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fs/vfs/host.h"

namespace tiffin::bench {
namespace {

constexpr unsigned char kNowhere[6] = {2, 0, 0, 0, 0, 1};

[[noreturn]] void stop(const char* what) {
    std::fprintf(stderr, "link cutter: %s: %s\n", what, std::strerror(errno));
    std::_Exit(EXIT_FAILURE);
}

int make_socket() {
    const int made = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (made < 0) {
        stop("a socket");
    }
    return made;
}

int make_socket_in(const std::string& name) {
    const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    const int other = open(("/run/netns/" + name).c_str(), O_RDONLY | O_CLOEXEC);
    if (own < 0 || other < 0 || setns(other, CLONE_NEWNET) != 0) {
        stop("the server's network namespace");
    }
    const int made = make_socket();
    if (setns(own, CLONE_NEWNET) != 0) {
        stop("the own network namespace");
    }
    close(other);
    close(own);
    return made;
}

void find_hardware(int socket, const std::string& device, unsigned char* address) {
    ifreq request{};
    device.copy(request.ifr_name, IFNAMSIZ - 1);
    if (ioctl(socket, SIOCGIFHWADDR, &request) != 0) {
        stop(device.c_str());
    }
    std::memcpy(address, request.ifr_hwaddr.sa_data, 6);
}

}  // namespace

const char* name_of(CutDirection direction) {
    constexpr const char* kNames[] = {"both", "to the server", "to the client"};
    return kNames[static_cast<size_t>(direction)];
}

LinkCutter::Link LinkCutter::Link::parse(const std::string& text) {
    std::istringstream stream(text);
    Link link;
    std::getline(stream, link.client_device, ',');
    std::getline(stream, link.client_address, ',');
    std::getline(stream, link.server_device, ',');
    std::getline(stream, link.server_address, ',');
    return link;
}

LinkCutter::LinkCutter(const std::string& server_namespace, std::vector<Link> links)
    : client_socket_(make_socket()), server_socket_(make_socket_in(server_namespace)) {
    for (Link& link : links) {
        Known known;
        find_hardware(client_socket_, link.client_device, known.client_hardware);
        find_hardware(server_socket_, link.server_device, known.server_hardware);
        known.link = std::move(link);
        links_.push_back(std::move(known));
        repair(links_.size() - 1);
    }
}

LinkCutter::~LinkCutter() {
    close(client_socket_);
    close(server_socket_);
}

void LinkCutter::set_neighbour(int socket, const std::string& device, const std::string& address,
                               const unsigned char* hardware_address) {
    arpreq request{};
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    if (inet_pton(AF_INET, address.c_str(), &peer.sin_addr) != 1) {
        stop(address.c_str());
    }
    std::memcpy(&request.arp_pa, &peer, sizeof(peer));
    request.arp_ha.sa_family = ARPHRD_ETHER;
    std::memcpy(request.arp_ha.sa_data, hardware_address, 6);
    request.arp_flags = ATF_PERM | ATF_COM;
    device.copy(request.arp_dev, sizeof(request.arp_dev) - 1);
    if (ioctl(socket, SIOCSARP, &request) != 0) {
        stop("a neighbour");
    }
}

uint64_t LinkCutter::cut(size_t link, CutDirection direction) {
    const Link& one = links_[link].link;
    if (direction != CutDirection::to_client) {
        set_neighbour(client_socket_, one.client_device, one.server_address, kNowhere);
    }
    if (direction != CutDirection::to_server) {
        set_neighbour(server_socket_, one.server_device, one.client_address, kNowhere);
    }
    return host::monotonic_ns();
}

void LinkCutter::repair(size_t link) {
    const Known& one = links_[link];
    set_neighbour(client_socket_, one.link.client_device, one.link.server_address,
                  one.server_hardware);
    set_neighbour(server_socket_, one.link.server_device, one.link.client_address,
                  one.client_hardware);
}

}  // namespace tiffin::bench
