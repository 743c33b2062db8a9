// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Cuts links to a server in another network namespace within microseconds, and says when: what is sent goes to an address
// that no interface has, and nobody is told. Needs root, and links as tests/remote/lib/links.sh makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tiffin::bench {

enum class CutDirection : uint8_t { both, to_server, to_client };

const char* name_of(CutDirection direction);

class LinkCutter {
  public:
    struct Link {
        std::string client_device;
        std::string client_address;
        std::string server_device;
        std::string server_address;

        // CLIENT_DEVICE,CLIENT_ADDRESS,SERVER_DEVICE,SERVER_ADDRESS.
        static Link parse(const std::string& text);
    };

    // `server_namespace` as `ip netns` names it. Stops the program on any error, here and below.
    LinkCutter(const std::string& server_namespace, std::vector<Link> links);
    ~LinkCutter();
    LinkCutter(const LinkCutter&) = delete;
    LinkCutter& operator=(const LinkCutter&) = delete;

    // host::monotonic_ns() when it was done.
    uint64_t cut(size_t link, CutDirection direction);
    void repair(size_t link);

  private:
    void set_neighbour(int socket, const std::string& device, const std::string& address,
                       const unsigned char* hardware_address);

    int client_socket_ = -1;
    int server_socket_ = -1;
    struct Known {
        Link link;
        unsigned char client_hardware[6];
        unsigned char server_hardware[6];
    };
    std::vector<Known> links_;
};

}  // namespace tiffin::bench
