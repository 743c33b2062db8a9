// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/administration.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "rdma_blk/session/handshake.h"
#include "rdma_blk/wire/hexadecimal.h"

namespace tiffin::rdma_blk {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 65536;
constexpr int kPatienceMs = 10'000;  // for a line to come, and for an answer to be taken
constexpr int kRetryMs = 100;

Json failure(const std::string& text) { return {{"ok", false}, {"error", text}}; }

// Texts of clients need not be UTF-8.
std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json describe(const VolumeInfo& info) {
    return {{"name", info.name},
            {"uuid", info.uuid},
            {"data_bytes", info.data_bytes},
            {"memory_bytes", info.memory_bytes},
            {"words_bytes", info.words_bytes},
            {"backing", info.backing},
            {"epoch", info.epoch},
            {"content_incarnation", info.content_incarnation},
            {"empty_since_incarnation", info.empty_since_incarnation},
            {"sessions", info.session_count},
            {"connected_sessions", info.connected_session_count},
            {"holder", info.holder},
            {"holder_silent_ms", info.holder_silent_ms},
            {"huge_pages", info.has_huge_pages},
            {"locked", info.is_locked}};
}

std::string text_of(const Json& request, const char* key) {
    const auto found = request.find(key);
    return found != request.end() && found->is_string() ? found->get<std::string>() : "";
}

uint64_t number_of(const Json& request, const char* key, uint64_t otherwise) {
    const auto found = request.find(key);
    return found != request.end() && found->is_number_unsigned() ? found->get<uint64_t>()
                                                                 : otherwise;
}

Json create(Server& server, const Json& request) {
    std::string problem;
    const Server::NewVolume wanted{text_of(request, "name"), number_of(request, "size_bytes", 0),
                                   number_of(request, "words_bytes", 4096),
                                   text_of(request, "backing"),
                                   request.value("force", Json()) == true};
    const auto key = server.create_volume(wanted, problem);
    if (!key.ok()) {
        return failure(problem);
    }
    return {{"ok", true}, {"key", to_hexadecimal(ByteSpan(key.value().bytes))}};
}

Json info(Server& server, const Json& request) {
    const std::string name = text_of(request, "name");
    for (const VolumeInfo& volume : server.list_volumes()) {
        if (volume.name == name) {
            Json answer = {{"ok", true}, {"volume", describe(volume)}};
            const auto served = server.find_volume(name.c_str());
            if (request.value("with_key", Json()) == true && served) {
                Secret<kVolumeKeyBytes> reader_key;
                derive_reader_key(served->key(), reader_key);
                answer["key"] = to_hexadecimal(ByteSpan(served->key().bytes));
                answer["reader_key"] = to_hexadecimal(ByteSpan(reader_key.bytes));
            }
            return answer;
        }
    }
    return failure(server.absence_of(name));
}

Json status(Server& server) {
    const ServerCounters& counters = server.counters();
    return {{"ok", true},
            {"connections", server.connection_count()},
            {"memory_bytes", server.memory_bytes()},
            {"memory_limit_bytes", server.memory_limit_bytes()},
            {"handshakes_done", counters.handshakes_done.load()},
            {"handshakes_denied", counters.handshakes_denied.load()},
            {"handshakes_failed", counters.handshakes_failed.load()},
            {"malformed_messages", counters.malformed_messages.load()}};
}

Json answer_request(Server& server, const Json& request) {
    const std::string command = text_of(request, "command");
    std::string problem;
    if (command == "create") {
        return create(server, request);
    }
    if (command == "list") {
        Json volumes = Json::array();
        for (const VolumeInfo& volume : server.list_volumes()) {
            volumes.push_back(describe(volume));
        }
        for (const auto& [name, problem_of_it] : server.failed_volumes()) {
            volumes.push_back({{"name", name}, {"problem", problem_of_it}});
        }
        return {{"ok", true}, {"volumes", volumes}};
    }
    if (command == "info") {
        return info(server, request);
    }
    if (command == "status") {
        return status(server);
    }
    if (command == "delete") {
        const bool force = request.value("force", Json()) == true;
        return server.delete_volume(text_of(request, "name"), force, problem).ok()
                   ? Json{{"ok", true}}
                   : failure(problem);
    }
    if (command == "resize") {
        const auto resized = server.resize_volume(text_of(request, "name"),
                                                  number_of(request, "size_bytes", 0), problem);
        return resized.ok() ? Json{{"ok", true}} : failure(problem);
    }
    return failure("unknown command \"" + command + "\"");
}

bool wait_readable(int descriptor, int stop_event, int timeout_ms) {
    pollfd polled[2] = {{descriptor, POLLIN, 0}, {stop_event, POLLIN, 0}};
    return poll(polled, 2, timeout_ms) > 0 && polled[1].revents == 0 && polled[0].revents != 0;
}

}  // namespace

std::string answer_administration(Server& server, const std::string& line) {
    const Json request = Json::parse(line, nullptr, false);
    if (!request.is_object()) {
        return dump(failure("not a JSON object"));
    }
    return dump(answer_request(server, request));
}

Result<void> AdministrationSocket::start(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return Error::enametoolong;
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    stop_event_.reset(eventfd(0, EFD_CLOEXEC));
    if (connect(listener_.get(), name, sizeof(address)) == 0) {
        return Error::ebusy;
    }
    (void)unlink(path.c_str());
    listener_.reset(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const mode_t previous = umask(0177);
    const int bound = bind(listener_.get(), name, sizeof(address));
    umask(previous);
    if (bound != 0 || listen(listener_.get(), 16) != 0) {
        return static_cast<Error>(errno);
    }
    path_ = path;
    return thread_.start(
        "tiffind-admin", [](void* self) { static_cast<AdministrationSocket*>(self)->run(); }, this);
}

void AdministrationSocket::stop() {
    if (!thread_.running()) {
        return;
    }
    const uint64_t one = 1;
    (void)!write(stop_event_.get(), &one, sizeof(one));
    thread_.join();
    (void)unlink(path_.c_str());
}

void AdministrationSocket::run() {
    while (true) {
        pollfd polled[2] = {{listener_.get(), POLLIN, 0}, {stop_event_.get(), POLLIN, 0}};
        (void)poll(polled, 2, -1);
        if (polled[1].revents != 0) {
            return;
        }
        const UniqueDescriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (connection.valid()) {
            // One that does not read its answers must not keep the server from ending.
            const timeval patience{kPatienceMs / 1000, 0};
            (void)setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &patience,
                             sizeof(patience));
            serve(connection.get());
        } else {
            // When descriptors run out, the connection goes on waiting, and poll() with it.
            (void)poll(&polled[1], 1, kRetryMs);
        }
    }
}

namespace {

// What its user has given up while it waited is not done.
bool has_hung_up(int connection) {
    pollfd polled{connection, 0, 0};
    return poll(&polled, 1, 0) > 0 && (polled.revents & (POLLHUP | POLLERR)) != 0;
}

}  // namespace

void AdministrationSocket::serve(int connection) {
    std::string received;
    while (wait_readable(connection, stop_event_.get(), kPatienceMs)) {
        char buffer[4096];
        const ssize_t count = recv(connection, buffer, sizeof(buffer), 0);
        if (count <= 0 || received.size() > kMaxLineBytes) {
            return;
        }
        received.append(buffer, static_cast<size_t>(count));
        size_t end = 0;
        while ((end = received.find('\n')) != std::string::npos) {
            if (has_hung_up(connection)) {
                return;
            }
            const std::string answer =
                answer_administration(server_, received.substr(0, end)) + "\n";
            received.erase(0, end + 1);
            if (send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) !=
                static_cast<ssize_t>(answer.size())) {
                return;
            }
        }
    }
}

}  // namespace tiffin::rdma_blk
