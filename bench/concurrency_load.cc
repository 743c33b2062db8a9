// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What several threads do at once: creating files, looking them up, reading and writing, each thread in a
// directory and a file of its own or all in the same; and in this process, for comparison, each on a volume of
// its own.
//
//     concurrency_load core [--rounds N] [--threads N]...     tiffinfs in this process, on memory
//     concurrency_load FOLDER [...]                           system calls on whatever is mounted there
//
// Each thread does the same work however many there are, so that time stays the same where nothing is in the
// way. Rounds take turns through all measurements and numbers of threads; shown are medians of operations per
// second, and how many times one thread's that is. On a machine that does other work too that says little; so the
// same follows without the time for which a thread could have run and had no processor, which leaves what threads
// do and what they wait for, and then the processor time of an operation. --only NAME runs one measurement, for
// profiling. With --delay-us N (core) the device takes that long for each request: what can be under way at once.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/content_reader.h"
#include "fs/vfs/content_writer.h"
#include "fuse/host/memory_device.h"

namespace {

using namespace tiffin;
using Clock = std::chrono::steady_clock;

constexpr uint64_t kDeviceBytes = 1ULL << 30;
constexpr size_t kBlockBytes = 4096;
constexpr uint64_t kFileBlocks = 4096;  // 16 MiB
constexpr uint64_t kCreates = 50'000;
constexpr uint64_t kTransfers = 100'000;
constexpr uint64_t kNames = 20'000;

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::exit(1);
}

// ---- Where it is done -----------------------------------------------------------------------------

// Paths have one or two components: "d" or "d/f".
class Target {
  public:
    virtual ~Target() = default;
    virtual void make_directory(const std::string& path) = 0;
    virtual void create(const std::string& path) = 0;
    virtual void lookup(const std::string& path) = 0;
    // For read() and write(), until the target is gone.
    virtual uint64_t open(const std::string& path) = 0;
    virtual void read(uint64_t file, uint64_t block, char* data, size_t size_bytes) = 0;
    virtual void write(uint64_t file, uint64_t block, char* data, size_t size_bytes) = 0;
};

// Memory that has been written to before, since it is not the system's handing out of pages that is to be
// measured.
vfs::BlockDevice& used_memory(unsigned number) {
    static std::vector<std::unique_ptr<fuse::MemoryDevice>> devices;
    while (devices.size() <= number) {
        auto made = std::move(fuse::MemoryDevice::create(kDeviceBytes).value());
        std::vector<char> data(1U << 20, 'u');
        for (uint64_t offset = 0; offset < kDeviceBytes; offset += data.size()) {
            if (!made->write(offset, data.data(), data.size()).ok()) {
                fail("write");
            }
        }
        devices.push_back(std::move(made));
    }
    return *devices[number];
}

// How long each request takes, while it is measured.
uint32_t device_delay_us = 0;
std::atomic<bool> is_delayed{false};

class DelayedDevice final : public vfs::BlockDevice {
  public:
    explicit DelayedDevice(vfs::BlockDevice& device) : device_(device) {}

    const vfs::DeviceGeometry& geometry() const override { return device_.geometry(); }
    void submit(vfs::IoRequest& request) override { device_.submit(request); }
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers, size_t count) override {
        wait();
        return device_.read(offset_bytes, buffers, count);
    }
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers, size_t count) override {
        wait();
        return device_.write(offset_bytes, buffers, count);
    }
    // Not for requests that are submitted: a block is one that is waited for.
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override {
        return is_delayed ? nullptr : device_.direct_address(offset_bytes, size_bytes);
    }

  private:
    static void wait() {
        if (is_delayed) {
            std::this_thread::sleep_for(std::chrono::microseconds(device_delay_us));
        }
    }

    vfs::BlockDevice& device_;
};

class Core final : public Target {
  public:
    explicit Core(unsigned number) : device_(used_memory(number)) {
        vfs::BlockDevice& device = device_;
        if (!tiffinfs::make_file_system(device, {}).ok()) {
            fail("make_file_system");
        }
        Result<vfs::FileSystem*> mounted = tiffinfs::mount(device, {});
        if (!mounted.ok()) {
            fail("mount");
        }
        fs_ = mounted.value();
    }
    ~Core() override {
        if (!fs_->unmount().ok()) {
            fail("unmount");
        }
        tiffinfs::destroy(fs_);
    }

    void make_directory(const std::string& path) override {
        const Result<vfs::Attributes> made =
            fs_->make_directory({}, vfs::kRootNode, name_of(path), 0755, {});
        directories_[path] = must(made);
    }
    void create(const std::string& path) override {
        const size_t slash = path.find('/');
        const Result<vfs::Attributes> made =
            fs_->create({}, directories_.at(path.substr(0, slash)),
                        name_of(std::string_view(path).substr(slash + 1)), 0644, 0, 0, {});
        fs_->forget(must(made), 1);
    }
    void lookup(const std::string& path) override { fs_->forget(open(path), 1); }
    uint64_t open(const std::string& path) override {
        const size_t slash = path.find('/');
        return must(fs_->lookup(directories_.at(path.substr(0, slash)),
                                name_of(std::string_view(path).substr(slash + 1))));
    }
    void read(uint64_t file, uint64_t block, char* data, size_t size_bytes) override {
        const vfs::IoVector buffer{data, size_bytes};
        static thread_local const auto reader = std::make_unique<vfs::ContentReader>();
        if (vfs::read_content(*reader, *fs_, file, block * kBlockBytes,
                              Span<const vfs::IoVector>(&buffer, 1))
                .value_or(0) != size_bytes) {
            fail("read");
        }
    }
    void write(uint64_t file, uint64_t block, char* data, size_t size_bytes) override {
        const vfs::IoVector buffer{data, size_bytes};
        static thread_local const auto writer = std::make_unique<vfs::ContentWriter>();
        if (vfs::write_content(*writer, *fs_, file, block * kBlockBytes,
                               Span<const vfs::IoVector>(&buffer, 1), 0)
                .value_or(0) != size_bytes) {
            fail("write");
        }
    }

  private:
    static vfs::Name name_of(std::string_view text) { return {text.data(), text.size()}; }
    static uint64_t must(const Result<vfs::Attributes>& result) {
        if (!result.ok()) {
            fail("an operation");
        }
        return result.value().node;
    }

    DelayedDevice device_;
    vfs::FileSystem* fs_ = nullptr;
    std::map<std::string, uint64_t> directories_;  // changed while one thread runs
};

class Mounted final : public Target {
  public:
    explicit Mounted(const std::string& folder) : folder_(folder + "/concurrency-XXXXXX") {
        if (mkdtemp(folder_.data()) == nullptr) {
            fail("mkdtemp");
        }
    }
    ~Mounted() override {
        for (const int file : files_) {
            ::close(file);
        }
        std::filesystem::remove_all(folder_);
    }

    void make_directory(const std::string& path) override {
        if (::mkdir(full(path).c_str(), 0755) != 0) {
            fail("mkdir");
        }
    }
    void create(const std::string& path) override {
        const int file = ::open(full(path).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
        if (file < 0 || ::close(file) != 0) {
            fail("create");
        }
    }
    void lookup(const std::string& path) override {
        struct stat attributes;
        if (::stat(full(path).c_str(), &attributes) != 0) {
            fail("stat");
        }
    }
    // Past the kernel's cache: it is the file system that is to be measured.
    uint64_t open(const std::string& path) override {
        const int file = ::open(full(path).c_str(), O_RDWR | O_DIRECT);
        if (file < 0) {
            fail("open");
        }
        files_.push_back(file);
        return static_cast<uint64_t>(file);
    }
    void read(uint64_t file, uint64_t block, char* data, size_t size_bytes) override {
        if (::pread(static_cast<int>(file), data, size_bytes,
                    static_cast<off_t>(block * kBlockBytes)) != static_cast<ssize_t>(size_bytes)) {
            fail("read");
        }
    }
    void write(uint64_t file, uint64_t block, char* data, size_t size_bytes) override {
        if (::pwrite(static_cast<int>(file), data, size_bytes,
                     static_cast<off_t>(block * kBlockBytes)) != static_cast<ssize_t>(size_bytes)) {
            fail("write");
        }
    }

  private:
    std::string full(const std::string& path) const { return folder_ + "/" + path; }

    std::string folder_;
    std::vector<int> files_;
};

std::unique_ptr<Target> make_target(const std::string& where, unsigned number) {
    if (where == "core") {
        return std::make_unique<Core>(number);
    }
    return std::make_unique<Mounted>(where);
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- What is done ---------------------------------------------------------------------------------

enum class Kind { nothing, create, lookup, read, write };

// What threads have in common.
enum class Shared {
    nothing,    // each has a volume
    volume,     // each has a directory, and a file
    directory,  // and also the directory, and the file
};

struct Measurement {
    const char* name;
    Kind kind;
    Shared shared;

    bool uses_files() const { return kind == Kind::read || kind == Kind::write; }
    bool own_volumes() const { return kind != Kind::nothing && shared == Shared::nothing; }
    uint64_t operations() const {
        return (kind == Kind::create ? kCreates : kTransfers) / (device_delay_us > 0 ? 10 : 1);
    }
};

// In the first one each thread copies and sums blocks of memory of its own: what two processors give there is
// all that they can give. With a volume for each thread nothing is shared but the memory's bandwidth, the
// caches and the host.
constexpr Measurement kMeasurements[] = {
    {"memory", Kind::nothing, Shared::nothing},
    {"create-volumes", Kind::create, Shared::nothing},
    {"create-separate", Kind::create, Shared::volume},
    {"create-shared", Kind::create, Shared::directory},
    {"lookup-volumes", Kind::lookup, Shared::nothing},
    {"lookup-separate", Kind::lookup, Shared::volume},
    {"lookup-shared", Kind::lookup, Shared::directory},
    {"read-volumes", Kind::read, Shared::nothing},
    {"read-separate", Kind::read, Shared::volume},
    {"read-shared", Kind::read, Shared::directory},
    {"write-volumes", Kind::write, Shared::nothing},
    {"write-separate", Kind::write, Shared::volume},
    {"write-shared", Kind::write, Shared::directory},
};

std::string directory_of(const Measurement& measurement, unsigned thread) {
    return "d" + std::to_string(measurement.shared == Shared::directory ? 0 : thread);
}

std::string name_to_look_up(uint64_t number) { return "/file-" + std::to_string(number); }

// The directory of `thread`, and in it what is to be looked up, read or written.
void prepare(Target& target, const Measurement& measurement, unsigned thread) {
    const std::string directory = directory_of(measurement, thread);
    target.make_directory(directory);
    for (uint64_t i = 0; i < kNames && measurement.kind == Kind::lookup; ++i) {
        target.create(directory + name_to_look_up(i));
    }
    // Through FUSE the first one asks for the attributes of a new file. There are as many of these for any number of
    // threads, so left to the threads they would make several look faster than they are.
    for (uint64_t i = 0; i < kNames && measurement.kind == Kind::lookup; ++i) {
        target.lookup(directory + name_to_look_up(i));
    }
    if (!measurement.uses_files()) {
        return;
    }
    target.create(directory + "/f");
    constexpr size_t kBytes = 1U << 20;
    auto* data = static_cast<char*>(std::aligned_alloc(kBlockBytes, kBytes));
    std::fill(data, data + kBytes, 'x');
    const uint64_t file = target.open(directory + "/f");
    for (uint64_t block = 0; block < kFileBlocks; block += kBytes / kBlockBytes) {
        target.write(file, block, data, kBytes);
    }
    std::free(data);
}

struct Cost {
    double per_second = 0;              // all threads together
    double per_second_undisturbed = 0;  // with a processor for each thread
    double processor_us = 0;
};

// For how long the calling thread has waited for a processor so far.
double queued_seconds() {
    std::FILE* const file = std::fopen("/proc/thread-self/schedstat", "r");
    unsigned long long running_ns = 0;
    unsigned long long queued_ns = 0;
    if (file == nullptr || std::fscanf(file, "%llu %llu", &running_ns, &queued_ns) != 2) {
        fail("/proc/thread-self/schedstat");
    }
    std::fclose(file);
    return static_cast<double>(queued_ns) * 1e-9;
}

void run_thread(Target& target, const Measurement& measurement, unsigned thread, uint64_t file,
                double& undisturbed_seconds) {
    auto* data = static_cast<char*>(std::aligned_alloc(kBlockBytes, kBlockBytes));
    std::fill(data, data + kBlockBytes, 'y');
    const std::string directory = directory_of(measurement, thread);
    const std::string prefix = directory + "/file-" + std::to_string(thread) + "-";
    uint64_t random = thread + 1;
    const std::vector<char> memory(
        measurement.kind == Kind::nothing ? kFileBlocks * kBlockBytes : 0, 'm');
    const uint64_t count = measurement.operations();
    const double queued_before = queued_seconds();
    const Clock::time_point start = Clock::now();
    for (uint64_t i = 0; i < count; ++i) {
        random = random * 6364136223846793005U + 1442695040888963407U;
        const uint64_t block = (random >> 33) % kFileBlocks;
        switch (measurement.kind) {
            case Kind::nothing:
                std::copy_n(memory.data() + block * kBlockBytes, kBlockBytes, data);
                random ^= host::crc32c(0, data, kBlockBytes) & 1;
                break;
            case Kind::create:
                target.create(prefix + std::to_string(i));
                break;
            case Kind::lookup:
                target.lookup(directory + name_to_look_up((random >> 33) % kNames));
                break;
            case Kind::read:
                target.read(file, block, data, kBlockBytes);
                break;
            case Kind::write:
                target.write(file, block, data, kBlockBytes);
                break;
        }
    }
    undisturbed_seconds = seconds_since(start) - (queued_seconds() - queued_before);
    std::free(data);
}

// Of this process; a daemon's part is not seen here.
double processor_us() {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto us = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    };
    return us(usage.ru_utime) + us(usage.ru_stime);
}

Cost measure(const std::string& where, const Measurement& measurement, unsigned threads) {
    std::vector<std::unique_ptr<Target>> targets;
    for (unsigned i = 0; i < (measurement.own_volumes() ? threads : 1); ++i) {
        targets.push_back(make_target(where, i));
    }
    const auto target_of = [&](unsigned thread) -> Target& {
        return *targets[thread % targets.size()];
    };
    for (unsigned i = 0; i < (measurement.shared == Shared::directory ? 1 : threads); ++i) {
        prepare(target_of(i), measurement, i);
    }
    std::vector<uint64_t> files(threads);
    for (unsigned i = 0; i < threads && measurement.uses_files(); ++i) {
        files[i] = target_of(i).open(directory_of(measurement, i) + "/f");
    }
    is_delayed = device_delay_us > 0;
    const double processor_before = processor_us();
    const Clock::time_point start = Clock::now();
    std::vector<double> undisturbed_seconds(threads);
    std::vector<std::thread> running;
    for (unsigned i = 0; i < threads; ++i) {
        running.emplace_back(
            [&, i] { run_thread(target_of(i), measurement, i, files[i], undisturbed_seconds[i]); });
    }
    for (std::thread& thread : running) {
        thread.join();
    }
    const double seconds = seconds_since(start);
    is_delayed = false;
    const auto operations = static_cast<double>(measurement.operations() * threads);
    const double longest =
        *std::max_element(undisturbed_seconds.begin(), undisturbed_seconds.end());
    return {operations / seconds, operations / longest,
            (processor_us() - processor_before) / operations};
}

double median(const std::vector<Cost>& costs, double Cost::*member) {
    std::vector<double> values;
    for (const Cost& cost : costs) {
        values.push_back(cost.*member);
    }
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void print_row(const char* name, const std::map<unsigned, std::vector<Cost>>& costs,
               const std::vector<unsigned>& numbers) {
    std::printf("%-16s", name);
    for (const unsigned threads : numbers) {
        std::printf(" %13.0f", median(costs.at(threads), &Cost::per_second));
    }
    for (double Cost::*member : {&Cost::per_second, &Cost::per_second_undisturbed}) {
        std::printf("  ");
        for (const unsigned threads : numbers) {
            std::printf(" %5.2f", median(costs.at(threads), member) /
                                      median(costs.at(numbers.front()), member));
        }
    }
    std::printf("  ");
    for (const unsigned threads : numbers) {
        std::printf(" %6.2f", median(costs.at(threads), &Cost::processor_us));
    }
    std::printf("\n");
}

}  // namespace

int main(int count, char** arguments) {
    std::string where;
    std::string only;
    unsigned rounds = 5;
    std::vector<unsigned> numbers;
    for (int i = 1; i < count; ++i) {
        const std::string argument = arguments[i];
        const bool has_value = i + 1 < count;
        if (argument == "--rounds" && has_value) {
            rounds = static_cast<unsigned>(std::atoi(arguments[++i]));
        } else if (argument == "--threads" && has_value) {
            numbers.push_back(static_cast<unsigned>(std::atoi(arguments[++i])));
        } else if (argument == "--delay-us" && has_value) {
            device_delay_us = static_cast<unsigned>(std::atoi(arguments[++i]));
        } else if (argument == "--only" && has_value) {
            only = arguments[++i];
        } else if (where.empty() && argument[0] != '-') {
            where = argument;
        } else {
            where.clear();
            break;
        }
    }
    if (numbers.empty()) {
        numbers = {1, 2, 4};
    }
    if (where.empty() || rounds == 0 || std::count(numbers.begin(), numbers.end(), 0U) != 0) {
        std::fprintf(
            stderr,
            "usage: %s core|FOLDER [--rounds N] [--threads N]... [--only NAME] [--delay-us N]\n",
            arguments[0]);
        return 2;
    }
    std::printf("%-16s", "operations/s");
    for (const unsigned threads : numbers) {
        std::printf(" %8u thr.", threads);
    }
    std::printf("   relative; without other work; processor us\n");
    const bool in_this_process = where == "core";
    std::vector<const Measurement*> chosen;
    for (const Measurement& measurement : kMeasurements) {
        if ((only.empty() || only == measurement.name) &&
            (in_this_process || !measurement.own_volumes())) {
            chosen.push_back(&measurement);
        }
    }
    std::map<const Measurement*, std::map<unsigned, std::vector<Cost>>> results;
    for (unsigned round = 0; round < rounds; ++round) {
        for (const Measurement* measurement : chosen) {
            for (const unsigned threads : numbers) {
                results[measurement][threads].push_back(measure(where, *measurement, threads));
            }
        }
    }
    for (const Measurement* measurement : chosen) {
        print_row(measurement->name, results[measurement], numbers);
    }
    return 0;
}
