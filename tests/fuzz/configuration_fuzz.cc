// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffind's configuration: whatever a file contains, it is refused with one line, or within its bounds.
#include "rdma_blk/server/configuration.h"

#include "fs/vfs/host.h"
#include "tests/fuzz/fuzz_target.h"

namespace tiffin::fuzz {

std::vector<Input> seeds() {
    return {
        to_input(""), to_input("listen = \"[::]:4847\"\nthreads = 2\nmemory_limit = \"4G\"\n"),
        to_input("listen = [\"127.0.0.1:1\", \"[::1]:65535\"]\nhuge_pages = \"require\"\n"
                 "lock_memory = \"no\"\nmax_connections = 16384\nmax_sessions = 1\nslots = 1024\n"
                 "staging_bytes = \"2M\"\nsend_buffer_bytes = 65536\nmetrics = \"\"\n"),
        to_input("handshake_timeout_ms = 100\nmax_handshakes = 1\nprobe_interval_ms = 50\n"
                 "lease_timeout_s = 1\nstall_timeout_s = 3600\nshm_fencing = \"refuse\"\n"
                 "state_directory = \"/a\"\nruntime_directory = \"/b\"\n"),
        to_input("[volume.books]\nsize = \"1G\"\nbacking = \"/dev/sdb\"\nwords_bytes = 8192\n"
                 "[volume.more]\nsize = 4096\n")};
}

void repair(Input&) {}

}  // namespace tiffin::fuzz

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace tiffin::rdma_blk;
    Configuration configuration;
    std::string problem;
    const std::string text(reinterpret_cast<const char*>(data), size);
    if (!parse_configuration(text, "file", configuration, problem)) {
        TIFFIN_ASSERT(!problem.empty() && problem.find('\n') == std::string::npos);
        return 0;
    }
    TIFFIN_ASSERT(configuration.threads >= 1 && configuration.threads <= 256);
    TIFFIN_ASSERT(configuration.slots >= 1 && configuration.slots <= 1024);
    TIFFIN_ASSERT(!configuration.listen.empty() && configuration.listen.size() <= 16);
    TIFFIN_ASSERT(configuration.max_sessions >= 1 && configuration.max_sessions <= 4096);
    TIFFIN_ASSERT(uint64_t{configuration.lease_timeout_s} * 1000 >=
                  uint64_t{14} * configuration.probe_interval_ms);
    for (const auto& [name, volume] : configuration.volumes) {
        TIFFIN_ASSERT(!name.empty() && name.size() <= 63 && volume.size_bytes > 0);
    }
    return 0;
}
