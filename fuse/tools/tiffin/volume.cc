// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin volume: what administrators ask a tiffind of this host, over its socket.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>
#include <cerrno>
#include <cstring>

#include "fuse/check/describe.h"
#include "fuse/host/size_text.h"
#include "fuse/host/volume_key.h"
#include "fuse/tools/common/output.h"
#include "fuse/tools/tiffin/commands.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::fuse {
namespace {

using check::Json;
using rdma_blk::UniqueDescriptor;

Problem system_problem(const std::string& what) {
    return {what + ": " + system_error_text(errno), static_cast<Error>(errno)};
}

// Preparing memory takes long: the user is told why nothing happens.
constexpr int kSilentMs = 2000;
constexpr const char* kPreparingMemory =
    "tiffin: waiting for tiffind, which prepares the memory: some seconds for each GiB\n";
constexpr const char* kNoAnswerYet =
    "tiffin: waiting for tiffind, which is busy or stopped; it may do what was asked after you end "
    "the wait\n";

// One line there, one line back. `slow_notice` is shown when the answer takes long.
OrProblem<Json> ask(const std::string& socket_path, const Json& request,
                    const char* slow_notice = kNoAnswerYet) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (socket_path.size() >= sizeof(address.sun_path)) {
        return Problem{socket_path + ": the path is too long for a socket"};
    }
    std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
    const UniqueDescriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
        return system_problem("tiffind cannot be reached at " + socket_path);
    }
    std::string line;
    try {
        line = request.dump() + "\n";
    } catch (const Json::exception&) {
        return Problem{"tiffind takes only names and paths in UTF-8", Error::einval};
    }
    if (send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(line.size())) {
        return system_problem(socket_path);
    }
    pollfd ready{connection.get(), POLLIN, 0};
    if (poll(&ready, 1, kSilentMs) == 0) {
        (void)std::fputs(slow_notice, stderr);
    }
    std::string answer;
    while (answer.find('\n') == std::string::npos) {
        char buffer[4096];
        const ssize_t count = recv(connection.get(), buffer, sizeof(buffer), 0);
        if (count <= 0) {
            return Problem{socket_path + ": tiffind closed the connection", Error::eio};
        }
        answer.append(buffer, static_cast<size_t>(count));
    }
    Json json = Json::parse(answer, nullptr, false);
    if (!json.is_object() || !json.contains("ok")) {
        return Problem{socket_path + ": this is no answer of tiffind", Error::eproto};
    }
    if (json["ok"] != true) {
        return Problem{json.value("error", "tiffind refuses, and does not say why")};
    }
    return json;
}

// A new file that only its owner reads. An old one is never overwritten: it may be another volume's only key.
std::optional<Problem> write_key(const std::string& path, const std::string& key) {
    const UniqueDescriptor file(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    const std::string line = key + "\n";
    if (!file.valid() ||
        write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        fsync(file.get()) != 0) {
        std::optional<Problem> problem = system_problem("the key cannot be written to " + path);
        if (file.valid()) {  // made just now; part of a key is of no use, and would stand in the way
            (void)unlink(path.c_str());
        }
        return problem;
    }
    return std::nullopt;
}

std::optional<Problem> hand_out_key(const VolumeArguments& arguments, const Json& answer) {
    const std::string key = answer.value("key", "");
    if (arguments.key_file.empty()) {
        print_text("{}\n", key);
        if (flush_output()) {
            return std::nullopt;
        }
        return Problem{
            "the key could not be written, and the volume is there: 'tiffin volume info " +
            arguments.name + " --key-file FILE' writes it"};
    }
    std::optional<Problem> problem = write_key(arguments.key_file, key);
    if (problem.has_value()) {
        problem->text +=
            "; 'tiffin volume info " + arguments.name + " --key-file FILE' tries again";
    }
    return problem;
}

void print_volume(const Json& volume) {
    const auto text = [&](const char* key) { return volume.value(key, ""); };
    const auto number = [&](const char* key) { return volume.value(key, uint64_t{0}); };
    print_text("name:                 {}\n", text("name"));
    print_text("UUID:                 {}\n", text("uuid"));
    print_text("size:                 {} bytes\n", number("data_bytes"));
    print_text("memory in use:        {} bytes{}{}\n", number("memory_bytes"),
               volume.value("huge_pages", false) ? ", huge pages" : "",
               volume.value("locked", false) ? ", locked" : "");
    print_text("backing:              {}\n", text("backing").empty()
                                                 ? "none: the content is as lasting as the memory"
                                                 : text("backing"));
    print_text("epoch:                {}\n", number("epoch"));
    print_text("content incarnation:  {}\n", number("content_incarnation"));
    print_text("sessions:             {}, {} of them connected\n", number("sessions"),
               number("connected_sessions"));
    print_text("writer:               {}\n",
               text("holder").empty() ? "none"
                                      : fmt::format("{}, heard of {} ms ago", text("holder"),
                                                    number("holder_silent_ms")));
}

}  // namespace

std::optional<Problem> volume_create(const VolumeArguments& arguments) {
    const OrProblem<uint64_t> size = parse_size(arguments.size);
    if (!size.ok()) {
        return size.problem();
    }
    // Found out before the volume is there.
    if (!arguments.key_file.empty() && access(arguments.key_file.c_str(), F_OK) == 0) {
        return Problem{arguments.key_file + " exists already", Error::eexist};
    }
    const OrProblem<Json> answer = ask(arguments.socket,
                                       {{"command", "create"},
                                        {"name", arguments.name},
                                        {"size_bytes", size.value()},
                                        {"backing", arguments.backing},
                                        {"force", arguments.force}},
                                       kPreparingMemory);
    return answer.ok() ? hand_out_key(arguments, answer.value()) : answer.problem();
}

std::optional<Problem> volume_list(const VolumeArguments& arguments) {
    const OrProblem<Json> answer = ask(arguments.socket, {{"command", "list"}});
    if (!answer.ok()) {
        return answer.problem();
    }
    const Json volumes = answer.value().value("volumes", Json::array());
    if (arguments.json) {
        print_text("{}\n", volumes.dump(2));
        return std::nullopt;
    }
    for (const Json& volume : volumes) {
        if (volume.contains("problem")) {
            print_text("{}\tnot served: {}\n", volume.value("name", ""),
                       volume.value("problem", ""));
        } else {
            print_text("{}\t{}\t{}\n", volume.value("name", ""),
                       volume.value("data_bytes", uint64_t{0}), volume.value("holder", ""));
        }
    }
    return std::nullopt;
}

std::optional<Problem> volume_resize(const VolumeArguments& arguments) {
    const OrProblem<uint64_t> size = parse_size(arguments.size);
    if (!size.ok()) {
        return size.problem();
    }
    const OrProblem<Json> answer =
        ask(arguments.socket,
            {{"command", "resize"}, {"name", arguments.name}, {"size_bytes", size.value()}},
            kPreparingMemory);
    if (!answer.ok()) {
        return answer.problem();
    }
    print_text(
        "volume {}: {}; 'tiffin grow MOUNTPOINT', where it is mounted, takes that into use\n",
        arguments.name, format_size(size.value()));
    return std::nullopt;
}

std::optional<Problem> volume_delete(const VolumeArguments& arguments) {
    const OrProblem<Json> answer =
        ask(arguments.socket,
            {{"command", "delete"}, {"name", arguments.name}, {"force", arguments.force}});
    return answer.ok() ? std::nullopt : std::optional<Problem>(answer.problem());
}

std::optional<Problem> volume_info(const VolumeArguments& arguments) {
    const bool with_key = !arguments.key_file.empty() || !arguments.reader_key_file.empty();
    const OrProblem<Json> answer = ask(
        arguments.socket, {{"command", "info"}, {"name", arguments.name}, {"with_key", with_key}});
    if (!answer.ok()) {
        return answer.problem();
    }
    const Json volume = answer.value().value("volume", Json::object());
    if (arguments.json) {
        print_text("{}\n", volume.dump(2));
    } else {
        print_volume(volume);
    }
    std::optional<Problem> problem;
    if (!arguments.key_file.empty()) {
        problem = write_key(arguments.key_file, answer.value().value("key", ""));
    }
    if (!problem.has_value() && !arguments.reader_key_file.empty()) {
        const std::string key = answer.value().value("reader_key", "");
        problem = key.empty() ? Problem{"this tiffind makes no reader keys: it is an older one"}
                              : write_key(arguments.reader_key_file, kReaderKeyPrefix + key);
    }
    return problem;
}

}  // namespace tiffin::fuse
