// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/configuration.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "fs/vfs/host.h"
#include "rdma_blk/server/volume_state.h"
#include "rdma_blk/transport/busy_poll.h"
#include "rdma_blk/wire/byte_size.h"

// With exceptions the parser stops at the first mistake; without, damaged texts lead it into its own assertions.
// What it still asserts is a mistake in the file as well, not a reason to abort.
namespace {

constexpr void assert_toml(bool condition) {
    if (!condition) {
        throw std::logic_error("not valid TOML");
    }
}

}  // namespace

#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ASSERT(expression) assert_toml(static_cast<bool>(expression))
#include <toml++/toml.h>

namespace tiffin::rdma_blk {
namespace {

using host::kPageBytes;

constexpr uint64_t kMaxVolumeBytes = uint64_t{1} << 44;

// Takes keys out of a table; the first mistake stays.
class Reader {
  public:
    Reader(const std::string& file, std::string& problem) : file_(file), problem_(problem) {}

    bool ok() const { return problem_.empty(); }

    void fail(const toml::node& node, const std::string& text) {
        if (ok()) {
            problem_ = file_ + ":" + std::to_string(node.source().begin.line) + ": " + text;
        }
    }

    template <typename T>
    void number(const toml::node& node, const std::string& key, T& value, uint64_t least,
                uint64_t most) {
        const auto* integer = node.as_integer();
        if (integer == nullptr || integer->get() < 0 ||
            static_cast<uint64_t>(integer->get()) < least ||
            static_cast<uint64_t>(integer->get()) > most) {
            fail(node, key + " must be a number from " + std::to_string(least) + " to " +
                           std::to_string(most));
            return;
        }
        value = static_cast<T>(integer->get());
    }

    // A number of bytes, or a text such as "64M".
    void bytes(const toml::node& node, const std::string& key, uint64_t& value, uint64_t least,
               uint64_t most) {
        uint64_t size = 0;
        bool known = false;
        if (const auto* integer = node.as_integer()) {
            known = integer->get() >= 0;
            size = known ? static_cast<uint64_t>(integer->get()) : 0;
        } else if (const auto* string = node.as_string()) {
            const Result<uint64_t> parsed = parse_byte_size(string->get());
            known = parsed.ok();
            size = known ? parsed.value() : 0;
        }
        if (!known || size < least || size > most) {
            fail(node, key + " must be a size such as \"64M\", from " + std::to_string(least) +
                           " to " + std::to_string(most) + " bytes");
            return;
        }
        value = size;
    }

    bool text(const toml::node& node, const std::string& key, std::string& value) {
        const auto* string = node.as_string();
        if (string == nullptr) {
            fail(node, key + " must be a text in quotes");
            return false;
        }
        value = string->get();
        return true;
    }

    void wish(const toml::node& node, const std::string& key, Wish& value) {
        std::string word;
        if (!text(node, key, word)) {
            return;
        }
        if (word == "no") {
            value = Wish::no;
        } else if (word == "try") {
            value = Wish::try_it;
        } else if (word == "require") {
            value = Wish::require;
        } else {
            fail(node, key + " must be \"no\", \"try\" or \"require\"");
        }
    }

    void address(const toml::node& node, std::vector<ListenAddress>& addresses) {
        std::string word;
        ListenAddress one;
        if (!text(node, "listen", word)) {
            return;
        }
        if (!parse_listen_address(word, one)) {
            fail(node, "listen: \"" + word +
                           "\" is not ADDRESS:PORT; an IPv6 address stands in brackets");
            return;
        }
        addresses.push_back(one);
    }

  private:
    const std::string& file_;
    std::string& problem_;
};

void read_listen(Reader& reader, const toml::node& node, Configuration& configuration) {
    configuration.listen.clear();
    if (const auto* list = node.as_array()) {
        for (const toml::node& each : *list) {
            reader.address(each, configuration.listen);
        }
    } else {
        reader.address(node, configuration.listen);
    }
    const std::vector<ListenAddress>& all = configuration.listen;
    if (reader.ok() && (all.empty() || all.size() > 16)) {
        reader.fail(node, "listen must have 1 to 16 addresses");
    } else if (reader.ok() && std::any_of(all.begin(), all.end(), [&](const auto& one) {
                   return one.port != 0 && std::count(all.begin(), all.end(), one) > 1;
               })) {
        reader.fail(node, "listen has an address twice");
    }
}

void read_metrics(Reader& reader, const toml::node& node, std::string& metrics) {
    ListenAddress address;
    if (reader.text(node, "metrics", metrics) && !metrics.empty() &&
        !parse_listen_address(metrics, address)) {
        reader.fail(node, "metrics must be ADDRESS:PORT, or \"\" for none");
    }
}

void read_directory(Reader& reader, const toml::node& node, const std::string& key,
                    std::string& path) {
    if (reader.text(node, key, path) && (path.empty() || path[0] != '/')) {
        reader.fail(node, key + " must be an absolute path");
    }
}

void read_volume(Reader& reader, const std::string& name, const toml::node& node,
                 Configuration& configuration) {
    if (!is_volume_name(name)) {
        reader.fail(node, "volume." + name + ": a name has 1 to 63 of a-z A-Z 0-9 . _ -");
        return;
    }
    const auto* table = node.as_table();
    if (table == nullptr) {
        reader.fail(node, "volume." + name + " must be a table with size");
        return;
    }
    VolumeConfiguration volume;
    for (const auto& [key, value] : *table) {
        const std::string path = "volume." + name + "." + std::string(key.str());
        if (key.str() == "size") {
            reader.bytes(value, path, volume.size_bytes, kPageBytes, kMaxVolumeBytes);
        } else if (key.str() == "words_bytes") {
            reader.bytes(value, path, volume.words_bytes, kPageBytes, uint64_t{1} << 40);
        } else if (key.str() == "backing") {
            read_directory(reader, value, path, volume.backing);
        } else {
            reader.fail(value, path + " is not known");
        }
    }
    if (volume.size_bytes == 0) {
        reader.fail(node, "volume." + name + ".size is missing");
    } else if (volume.size_bytes % kPageBytes != 0 || volume.words_bytes % kPageBytes != 0) {
        reader.fail(node, "volume." + name + ": sizes must be multiples of 4096");
    }
    configuration.volumes[name] = volume;
}

void read_key(Reader& reader, const std::string& key, const toml::node& node, Configuration& c) {
    if (key == "listen") {
        read_listen(reader, node, c);
    } else if (key == "threads") {
        reader.number(node, key, c.threads, 1, 256);
    } else if (key == "memory_limit") {
        reader.bytes(node, key, c.memory_limit_bytes, 1 << 20, kMaxVolumeBytes);
    } else if (key == "huge_pages") {
        reader.wish(node, key, c.huge_pages);
    } else if (key == "lock_memory") {
        reader.wish(node, key, c.lock_memory);
    } else if (key == "max_connections") {
        reader.number(node, key, c.max_connections, 1, 16384);
    } else if (key == "busy_poll_us") {
        reader.number(node, key, c.busy_poll_us, 0, BusyPoll::kMaxUs);
    } else if (key == "cpu_latency_us") {
        reader.number(node, key, c.cpu_latency_us.emplace(), 0, kMaxCpuLatencyUs);
    } else if (key == "max_sessions") {
        reader.number(node, key, c.max_sessions, 1, 4096);
    } else if (key == "slots") {
        reader.number(node, key, c.slots, 1, 1024);
    } else if (key == "staging_bytes") {
        reader.bytes(node, key, c.staging_bytes, (1 << 20) + (64 << 10), 16 << 20);
    } else if (key == "send_buffer_bytes") {
        reader.bytes(node, key, c.send_buffer_bytes, 64 << 10, 64 << 20);
    } else if (key == "handshake_timeout_ms") {
        reader.number(node, key, c.handshake_timeout_ms, 100, 60000);
    } else if (key == "max_handshakes") {
        reader.number(node, key, c.max_handshakes, 1, 1024);
    } else if (key == "probe_interval_ms") {
        reader.number(node, key, c.probe_interval_ms, 50, 60000);
    } else if (key == "lease_timeout_s") {
        reader.number(node, key, c.lease_timeout_s, 1, 3600);
    } else if (key == "stall_timeout_s") {
        reader.number(node, key, c.stall_timeout_s, 1, 3600);
    } else if (key == "shm_fencing") {
        std::string word;
        if (reader.text(node, key, word) && word != "kill" && word != "refuse") {
            reader.fail(node, "shm_fencing must be \"kill\" or \"refuse\"");
        }
        c.shm_kills = word != "refuse";
    } else if (key == "sdr_port") {
        reader.number(node, key, c.sdr_port, 0, 65535);
    } else if (key == "max_sdr_sessions") {
        reader.number(node, key, c.max_sdr_sessions, 0, 1024);
    } else if (key == "sdr_landing_slots") {
        reader.number(node, key, c.sdr_landing_slots, 1, 64);
    } else if (key == "metrics") {
        read_metrics(reader, node, c.metrics);
    } else if (key == "state_directory") {
        read_directory(reader, node, key, c.state_directory);
    } else if (key == "runtime_directory") {
        read_directory(reader, node, key, c.runtime_directory);
    } else if (key == "volume" && node.is_table()) {
        for (const auto& [name, volume] : *node.as_table()) {
            read_volume(reader, std::string(name.str()), volume, c);
        }
    } else {
        reader.fail(node, key + " is not known");
    }
}

// The server notices only after ten intervals without traffic, and then four of a probe, that a client is gone; one
// that lives must have been heard of in that time before its lease can be taken.
void check_lease_timeout(Reader& reader, const toml::table& table, const Configuration& c) {
    constexpr uint64_t kIntervals = 14;
    if (uint64_t{c.lease_timeout_s} * 1000 >= kIntervals * c.probe_interval_ms) {
        return;
    }
    const toml::node* node = table.get("lease_timeout_s");
    node = node != nullptr ? node : table.get("probe_interval_ms");
    reader.fail(node != nullptr ? *node : table,
                "lease_timeout_s must be at least 14 times probe_interval_ms: " +
                    std::to_string((kIntervals * c.probe_interval_ms + 999) / 1000));
}

// What could not be served beside each other.
void check_conflicts(Reader& reader, const toml::table& table, const Configuration& c) {
    ListenAddress metrics;
    if (parse_listen_address(c.metrics, metrics) && metrics.port != 0 &&
        std::count(c.listen.begin(), c.listen.end(), metrics) != 0) {
        reader.fail(table, "metrics has an address that listen has, too");
    }
    for (const auto& [name, volume] : c.volumes) {
        for (const auto& [other_name, other] : c.volumes) {
            if (reader.ok() && name < other_name && !volume.backing.empty() &&
                volume.backing == other.backing) {
                std::string conflict = "the volumes ";
                conflict.append(name).append(" and ").append(other_name);
                reader.fail(table, conflict.append(" have the same backing"));
            }
        }
    }
}

// The line of the first character that is not ASCII, but for lines of comment; 0 when there is none. The parser's
// own test for white space is undefined for some of them, and where it makes that test in a wrong text is hard to say.
size_t find_stray_character(const std::string& text) {
    size_t line = 1;
    bool is_blank = true;
    bool is_comment = false;
    for (const char c : text) {
        if (c == '\n') {
            line++;
            is_blank = true;
            is_comment = false;
            continue;
        }
        is_comment = is_comment || (is_blank && c == '#');
        is_blank = is_blank && (c == ' ' || c == '\t');
        if (static_cast<unsigned char>(c) >= 0x80 && !is_comment) {
            return line;
        }
    }
    return 0;
}

}  // namespace

Configuration reloaded_configuration(const Configuration& running, Configuration fresh) {
    fresh.listen = running.listen;
    fresh.threads = running.threads;
    fresh.busy_poll_us = running.busy_poll_us;
    fresh.cpu_latency_us = running.cpu_latency_us;
    fresh.state_directory = running.state_directory;
    fresh.runtime_directory = running.runtime_directory;
    fresh.metrics = running.metrics;
    return fresh;
}

bool needs_restart_of_volumes(const Configuration& running, const Configuration& fresh) {
    return fresh.max_sessions != running.max_sessions || fresh.slots != running.slots ||
           fresh.lease_timeout_s != running.lease_timeout_s ||
           fresh.probe_interval_ms != running.probe_interval_ms ||
           fresh.shm_kills != running.shm_kills || fresh.huge_pages != running.huge_pages ||
           fresh.lock_memory != running.lock_memory;
}

bool needs_restart(const Configuration& running, const Configuration& fresh) {
    return fresh.listen != running.listen || fresh.threads != running.threads ||
           fresh.busy_poll_us != running.busy_poll_us ||
           fresh.cpu_latency_us != running.cpu_latency_us ||
           fresh.state_directory != running.state_directory ||
           fresh.runtime_directory != running.runtime_directory || fresh.metrics != running.metrics;
}

bool parse_configuration(const std::string& text, const std::string& file,
                         Configuration& configuration, std::string& problem) {
    problem.clear();
    if (const size_t line = find_stray_character(text); line != 0) {
        problem = file + ":" + std::to_string(line) +
                  ": a character that is not ASCII; in a string it is written as \\uXXXX";
        return false;
    }
    toml::table table;
    try {
        table = toml::parse(text, file);
    } catch (const toml::parse_error& error) {
        problem = file + ":" + std::to_string(error.source().begin.line) + ": " +
                  std::string(error.description());
        std::replace(problem.begin(), problem.end(), '\n', ' ');  // which it may quote
        return false;
    } catch (const std::logic_error& error) {
        problem = file + ": " + error.what();
        return false;
    }
    Reader reader(file, problem);
    for (const auto& [key, node] : table) {
        read_key(reader, std::string(key.str()), node, configuration);
    }
    if (reader.ok()) {
        check_lease_timeout(reader, table, configuration);
        check_conflicts(reader, table, configuration);
    }
    return reader.ok();
}

}  // namespace tiffin::rdma_blk
