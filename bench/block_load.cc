// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Random reads and writes of a block device, with so many under way: of Tiffin's (mem:, file:, tiffin://), or
// of a server that speaks NBD, through a client that does no more than it must, for comparison.
//
// usage: block_load ADDRESS [--write] [--depth N] [--size BYTES] [--seconds S]
//
//   ADDRESS  a device address, or nbd:HOST:PORT. What is there is overwritten with --write.
//
// Prints a line of JSON.
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/host/device_address.h"

namespace {

using namespace tiffin;

struct Options {
    std::string address;
    bool is_write = false;
    uint32_t depth = 1;
    uint64_t size_bytes = 4096;
    double seconds = 2;
};

[[noreturn]] void stop(const std::string& problem) {
    std::fprintf(stderr, "block_load: %s\n", problem.c_str());
    std::exit(EXIT_FAILURE);
}

// What is measured: starts operations, and says which one has ended.
class Target {
  public:
    virtual ~Target() = default;
    virtual uint64_t size_bytes() const = 0;
    // `more_follows`: another start() comes at once.
    virtual void start(uint32_t number, uint64_t offset_bytes, bool more_follows) = 0;
    virtual uint32_t next_completed() = 0;
    // Whether next_completed() would not have to wait.
    virtual bool has_completed() = 0;
};

// ---- Tiffin's devices -----------------------------------------------------------------------------------------

class DeviceTarget final : public Target {
  public:
    explicit DeviceTarget(const Options& options) : options_(options), slots_(options.depth) {
        auto opened = fuse::open_device(options.address, {.read_only = !options.is_write});
        if (!opened.ok()) {
            stop(opened.problem().text);
        }
        device_ = std::move(*opened);
        memory_bytes_ = (options.depth * options.size_bytes + 4095) / 4096 * 4096;
        memory_ = static_cast<unsigned char*>(host::allocate_pages(memory_bytes_));
        if (memory_ == nullptr) {
            stop("not enough memory");
        }
        std::memset(memory_, 0x5a, memory_bytes_);
    }
    ~DeviceTarget() override {
        device_.reset();
        host::release_pages(memory_, memory_bytes_);
    }

    uint64_t size_bytes() const override { return device_->geometry().size_bytes; }

    void start(uint32_t number, uint64_t offset_bytes, bool more_follows) override {
        Slot& slot = slots_[number];
        slot.buffer = {memory_ + number * options_.size_bytes, options_.size_bytes};
        if (options_.depth == 1) {
            // As a file system does it: the caller waits for the answer itself.
            const auto done = options_.is_write ? device_->write(offset_bytes, &slot.buffer, 1)
                                                : device_->read(offset_bytes, &slot.buffer, 1);
            failed_ = failed_ || !done.ok();
            return;
        }
        slot.request = vfs::IoRequest{};
        slot.request.operation =
            options_.is_write ? vfs::IoOperation::write : vfs::IoOperation::read;
        slot.request.offset_bytes = offset_bytes;
        slot.request.buffers = &slot.buffer;
        slot.request.buffer_count = 1;
        slot.request.owner = this;
        slot.request.more_follows = more_follows;
        slot.request.complete = [](vfs::IoRequest& request, Result<void> result) {
            auto* self = static_cast<DeviceTarget*>(request.owner);
            if (!result.ok()) {
                self->failed_ = true;
            }
            const auto* done = reinterpret_cast<const Slot*>(
                reinterpret_cast<const unsigned char*>(&request) - offsetof(Slot, request));
            const uint64_t place = self->completed_end_.fetch_add(1);
            self->completed_[place % kMaxDepth].store(
                static_cast<uint32_t>(done - self->slots_.data()) + 1);
            self->completions_.fetch_add(1);
            if (self->sleeps_.exchange(false)) {
                self->wake_.post();
            }
        };
        device_->submit(slot.request);
    }

    bool has_completed() override {
        return options_.depth == 1 || completed_[completed_begin_ % kMaxDepth].load() != 0;
    }

    uint32_t next_completed() override {
        uint32_t number = 1;
        if (options_.depth > 1) {
            while (!has_completed()) {
                const uint32_t seen = completions_.load();
                if (has_completed() || device_->help(completions_, seen)) {
                    continue;
                }
                sleeps_.store(true);
                if (!has_completed() || !sleeps_.exchange(false)) {
                    wake_.wait();
                }
            }
            number = completed_[completed_begin_++ % kMaxDepth].exchange(0);
        }
        if (failed_) {
            stop("an operation failed");
        }
        return number - 1;
    }

    static constexpr uint32_t kMaxDepth = 256;

  private:
    struct Slot {
        vfs::IoRequest request;
        vfs::IoVector buffer;
    };

    const Options& options_;
    std::unique_ptr<vfs::BlockDevice> device_;
    unsigned char* memory_ = nullptr;
    uint64_t memory_bytes_ = 0;
    std::vector<Slot> slots_;
    std::atomic<bool> failed_{false};
    std::atomic<bool> sleeps_{false};  // whoever makes it false posts
    host::Semaphore wake_;
    std::atomic<uint32_t> completed_[kMaxDepth] = {};
    std::atomic<uint64_t> completed_end_{0};
    std::atomic<uint32_t> completions_{0};
    uint64_t completed_begin_ = 0;
};

// ---- NBD --------------------------------------------------------------------------------------------------------

struct __attribute__((packed)) NbdRequest {
    uint32_t magic = htobe32(0x25609513);
    uint16_t flags = 0;
    uint16_t type = 0;  // 0 read, 1 write
    uint64_t cookie = 0;
    uint64_t offset_bytes = 0;
    uint32_t length_bytes = 0;
};
struct __attribute__((packed)) NbdReply {
    uint32_t magic = 0;
    uint32_t error = 0;
    uint64_t cookie = 0;
};

class NbdTarget final : public Target {
  public:
    explicit NbdTarget(const Options& options)
        : options_(options), memory_(options.depth * options.size_bytes, 0x5a) {
        const std::string name = options.address.substr(4);
        const size_t colon = name.rfind(':');
        sockaddr_in address{};
        address.sin_family = AF_INET;
        if (colon == std::string::npos ||
            inet_pton(AF_INET, name.substr(0, colon).c_str(), &address.sin_addr) != 1) {
            stop("an NBD server is nbd:HOST:PORT, the host a number");
        }
        address.sin_port = htons(static_cast<uint16_t>(std::atoi(name.c_str() + colon + 1)));
        socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
            stop("no NBD server there");
        }
        const int on = 1;
        (void)setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        negotiate();
    }
    ~NbdTarget() override { close(socket_); }

    uint64_t size_bytes() const override { return size_bytes_; }

    void start(uint32_t number, uint64_t offset_bytes, bool /*more_follows*/) override {
        NbdRequest request;
        request.type = htobe16(options_.is_write ? 1 : 0);
        request.cookie = number;
        request.offset_bytes = htobe64(offset_bytes);
        request.length_bytes = htobe32(static_cast<uint32_t>(options_.size_bytes));
        iovec parts[2] = {{&request, sizeof(request)},
                          {memory_.data() + number * options_.size_bytes,
                           options_.is_write ? static_cast<size_t>(options_.size_bytes) : 0}};
        const ssize_t whole = static_cast<ssize_t>(parts[0].iov_len + parts[1].iov_len);
        if (writev(socket_, parts, 2) != whole) {
            stop("sending failed");
        }
    }

    bool has_completed() override { return begin_ != end_; }

    // Answers come in the server's order.
    uint32_t next_completed() override {
        const auto reply = take<NbdReply>();
        const auto number = static_cast<uint32_t>(reply.cookie);
        if (reply.magic != htobe32(0x67446698) || reply.error != 0 || number >= options_.depth) {
            stop("the NBD server answers with an error");
        }
        if (!options_.is_write) {
            take_bytes(memory_.data() + number * options_.size_bytes, options_.size_bytes);
        }
        return number;
    }

  private:
    // The newstyle handshake, and the export without a name.
    void negotiate() {
        struct __attribute__((packed)) Greeting {
            uint64_t magic;
            uint64_t option_magic;
            uint16_t flags;
        };
        const auto greeting = take<Greeting>();
        if (be64toh(greeting.magic) != 0x4e42444d41474943) {
            stop("what answers there is no NBD server");
        }
        struct __attribute__((packed)) Choice {
            uint32_t flags = htobe32(3);  // fixed newstyle, no zeros
            uint64_t magic = htobe64(0x49484156454f5054);
            uint32_t option = htobe32(1);  // the export's name
            uint32_t length_bytes = 0;
        } choice;
        if (send(socket_, &choice, sizeof(choice), MSG_NOSIGNAL) != sizeof(choice)) {
            stop("sending failed");
        }
        struct __attribute__((packed)) Export {
            uint64_t size_bytes;
            uint16_t flags;
        };
        size_bytes_ = be64toh(take<Export>().size_bytes);
    }

    // What comes is read in large pieces, as by clients that are used in earnest.
    void take_bytes(unsigned char* out, uint64_t count) {
        while (count > 0) {
            if (begin_ == end_) {
                const ssize_t received = recv(socket_, buffer_, sizeof(buffer_), 0);
                if (received <= 0) {
                    stop("the NBD server is gone");
                }
                begin_ = 0;
                end_ = static_cast<size_t>(received);
            }
            const size_t part = std::min<size_t>(count, end_ - begin_);
            std::memcpy(out, buffer_ + begin_, part);
            begin_ += part;
            out += part;
            count -= part;
        }
    }
    template <typename T>
    T take() {
        T value;
        take_bytes(reinterpret_cast<unsigned char*>(&value), sizeof(value));
        return value;
    }

    const Options& options_;
    std::vector<unsigned char> memory_;
    int socket_ = -1;
    uint64_t size_bytes_ = 0;
    unsigned char buffer_[65536];
    size_t begin_ = 0;
    size_t end_ = 0;
};

// ---- The load -----------------------------------------------------------------------------------------------------

void measure(Target& target, const Options& options) {
    uint64_t state = 1;
    const uint64_t places = target.size_bytes() / options.size_bytes;
    if (places == 0) {
        stop("the device is too small");
    }
    const auto next_offset = [&] {
        state = state * 6364136223846793005 + 1442695040888963407;
        return (state >> 20) % places * options.size_bytes;
    };
    std::vector<uint64_t> started_ns(options.depth);
    std::vector<uint64_t> latencies_ns;
    latencies_ns.reserve(4 << 20);
    const uint64_t begin_ns = host::monotonic_ns();
    const uint64_t end_ns = begin_ns + static_cast<uint64_t>(options.seconds * 1e9);
    uint32_t under_way = 0;
    for (; under_way < options.depth; under_way++) {
        started_ns[under_way] = host::monotonic_ns();
        target.start(under_way, next_offset(), under_way + 1 < options.depth);
    }
    uint64_t now_ns = begin_ns;
    while (under_way > 0) {
        const uint32_t number = target.next_completed();
        now_ns = host::monotonic_ns();
        latencies_ns.push_back(now_ns - started_ns[number]);
        if (now_ns < end_ns) {
            started_ns[number] = now_ns;
            target.start(number, next_offset(), target.has_completed());
        } else {
            under_way--;
        }
    }
    const double seconds = static_cast<double>(now_ns - begin_ns) / 1e9;
    std::sort(latencies_ns.begin(), latencies_ns.end());
    std::printf(
        "{\"operations\": %zu, \"operations_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
        latencies_ns.size(), static_cast<double>(latencies_ns.size()) / seconds,
        static_cast<double>(latencies_ns[latencies_ns.size() / 2]) / 1000,
        static_cast<double>(latencies_ns[latencies_ns.size() * 99 / 100]) / 1000);
}

Options read_arguments(int count, char** arguments) {
    Options options;
    for (int i = 1; i < count; i++) {
        const std::string argument = arguments[i];
        const char* value = i + 1 < count ? arguments[i + 1] : "";
        if (argument == "--write") {
            options.is_write = true;
        } else if (argument == "--depth") {
            options.depth = static_cast<uint32_t>(std::atoi(value)), i++;
        } else if (argument == "--size") {
            options.size_bytes = static_cast<uint64_t>(std::atoll(value)), i++;
        } else if (argument == "--seconds") {
            options.seconds = std::atof(value), i++;
        } else {
            options.address = argument;
        }
    }
    if (options.address.empty() || options.depth == 0 || options.depth > DeviceTarget::kMaxDepth ||
        options.size_bytes < 512 || options.size_bytes > (1 << 20) || !(options.seconds > 0)) {
        stop(
            "usage: block_load ADDRESS [--write] [--depth 1-256] [--size 512-1048576] "
            "[--seconds S]");
    }
    return options;
}

}  // namespace

int main(int count, char** arguments) {
    const Options options = read_arguments(count, arguments);
    std::unique_ptr<Target> target;
    if (options.address.starts_with("nbd:")) {
        target = std::make_unique<NbdTarget>(options);
    } else {
        target = std::make_unique<DeviceTarget>(options);
    }
    measure(*target, options);
    return EXIT_SUCCESS;
}
