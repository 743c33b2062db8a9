// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Runs a workload of Filebench's kind in a folder: a set of files, and threads that each repeat a list of operations.
//
//     filebench_load FOLDER KEY=VALUE...
//
//   flow=NAME,...     what a thread repeats, of:
//                       create open close delete stat fsync write_whole read_whole append_random append_log
//                       read_sequential read_random write_random append_sequential
//   files=N           in the set                    width=N     files in a directory
//   mean_bytes=N      size of a file                gamma=0|1   sizes vary around it (gamma distribution, shape 1.5)
//   present=PERCENT   of the files exist before     threads=N   that run the flow
//   io_bytes=N        of one read or write          append_bytes=N  append_random adds 1 to N bytes
//   loops=N           all threads together end after so many passes (0: no limit)
//   seconds=X         they end after this time at the latest
//
// Operations mean what Filebench's flowops of that name mean, and each counts as one, closing included. Files are
// chosen at random: to create among those that do not exist, to delete among those that nobody has open, else among all.
// read_*, write_random and append_sequential work on one file that each thread opens once. A thread ends when there is
// nothing left to create or delete. Before the clock starts the files are made and synced.
//
// Prints one line of JSON: seconds, operations, loops, bytes_read, bytes_written, sync_seconds (to sync what was left dirty
// at the end), and timeline_operations (counted every 100 ms). Ends with status 1 when a system call fails.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Random = std::mt19937_64;

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr double kShape = 1.5;

// A system call that must not fail: figures of what failed would mean nothing.
template <typename T>
T must(T answer, const char* call) {
    if (answer < 0) {
        std::perror(call);
        std::_Exit(1);
    }
    return answer;
}
#define MUST_CALL(call) must(call, #call)

[[noreturn]] void refuse(const std::string& problem) {
    std::fprintf(stderr, "filebench_load: %s\n", problem.c_str());
    std::exit(2);
}

struct Settings {
    std::map<std::string, std::string> values{{"files", "1"},
                                              {"width", "1000000"},
                                              {"mean_bytes", "16384"},
                                              {"gamma", "0"},
                                              {"present", "100"},
                                              {"threads", "1"},
                                              {"io_bytes", "1048576"},
                                              {"append_bytes", "16384"},
                                              {"loops", "0"},
                                              {"seconds", "1"},
                                              {"flow", ""}};

    uint64_t number(const char* key) const {
        return std::strtoull(values.at(key).c_str(), nullptr, 10);
    }
};

// The set: which of its files exist, and how many threads have each open.
class FileSet {
  public:
    FileSet(std::string folder, const Settings& settings) : folder_(std::move(folder)) {
        const size_t count = settings.number("files");
        const size_t width = settings.number("width");
        const double mean_bytes = static_cast<double>(settings.number("mean_bytes"));
        Random random(1);
        std::gamma_distribution<double> gamma(kShape, mean_bytes / kShape);
        for (size_t i = 0; i < count; ++i) {
            if (i % width == 0) {
                MUST_CALL(mkdir(directory(i / width).c_str(), 0755));
            }
            const double size_bytes = settings.number("gamma") != 0 ? gamma(random) : mean_bytes;
            files_.push_back({directory(i / width) + "/f" + std::to_string(i),
                              static_cast<uint64_t>(size_bytes) + 1, 0});
            const bool is_present = i * 100 < count * settings.number("present");
            (is_present ? present_ : absent_).push_back(i);
        }
    }

    struct File {
        std::string path;
        uint64_t size_bytes;
        int open_count;
    };

    // Those that exist before; the caller makes them.
    const std::vector<size_t>& present() const { return present_; }
    const File& file(size_t index) const { return files_[index]; }

    // One that does not exist. It counts as open, and as existing from created() on.
    std::optional<size_t> take_absent(Random& random) {
        const std::lock_guard guard(lock_);
        return take_out(absent_, random() % (absent_.empty() ? 1 : absent_.size()));
    }
    void created(size_t index) {
        const std::lock_guard guard(lock_);
        ++files_[index].open_count;
        present_.push_back(index);
    }
    std::optional<size_t> open(Random& random) {
        const std::lock_guard guard(lock_);
        if (present_.empty()) {
            return std::nullopt;
        }
        const size_t index = present_[random() % present_.size()];
        ++files_[index].open_count;
        return index;
    }
    void close(size_t index) {
        const std::lock_guard guard(lock_);
        --files_[index].open_count;
    }
    // One that nobody has open; it counts as neither existing nor absent until deleted().
    std::optional<size_t> take_closed(Random& random) {
        const std::lock_guard guard(lock_);
        const size_t start = present_.empty() ? 0 : random() % present_.size();
        for (size_t i = 0; i < present_.size(); ++i) {
            const size_t place = (start + i) % present_.size();
            if (files_[present_[place]].open_count == 0) {
                return take_out(present_, place);
            }
        }
        return std::nullopt;
    }
    void deleted(size_t index) {
        const std::lock_guard guard(lock_);
        absent_.push_back(index);
    }
    std::string log_path() const { return folder_ + "/log"; }

  private:
    std::string directory(size_t number) const { return folder_ + "/d" + std::to_string(number); }

    static std::optional<size_t> take_out(std::vector<size_t>& from, size_t place) {
        if (from.empty()) {
            return std::nullopt;
        }
        std::swap(from[place], from.back());
        const size_t index = from.back();
        from.pop_back();
        return index;
    }

    const std::string folder_;
    std::vector<File> files_;
    std::mutex lock_;
    std::vector<size_t> present_;
    std::vector<size_t> absent_;
};

struct Shared {
    explicit Shared(const Settings& settings)
        : loops_left(static_cast<int64_t>(settings.number("loops"))) {}
    std::atomic<bool> must_stop = false;
    std::atomic<int> running = 0;
    std::atomic<int64_t> loops_left;
};

// What one thread does.
class Worker {
  public:
    Worker(FileSet& set, const Settings& settings, std::vector<std::string> flow, Shared& shared,
           uint64_t seed)
        : set_(set),
          flow_(std::move(flow)),
          shared_(shared),
          random_(seed),
          is_limited_(settings.number("loops") != 0),
          io_bytes_(settings.number("io_bytes")),
          append_bytes_(settings.number("append_bytes")),
          data_(std::max(io_bytes_, append_bytes_)) {
        for (char& byte : data_) {
            byte = static_cast<char>(random_());
        }
    }

    void run() {
        while (!shared_.must_stop.load(std::memory_order_relaxed) &&
               (!is_limited_ || shared_.loops_left.fetch_sub(1) > 0) && pass()) {
            ++loops;
        }
        close_file();
        for (const int file : {fixed_, log_}) {
            if (file >= 0) {
                MUST_CALL(::close(file));
            }
        }
        --shared_.running;
    }

    std::atomic<uint64_t> operations = 0;  // read meanwhile
    uint64_t loops = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;

  private:
    // False when there is nothing left to do, or the time is over.
    bool pass() {
        for (const std::string& name : flow_) {
            if (shared_.must_stop.load(std::memory_order_relaxed) || !step(name)) {
                return false;
            }
            operations.store(operations.load(std::memory_order_relaxed) + 1,
                             std::memory_order_relaxed);
        }
        return true;
    }

    bool step(const std::string& name) {
        if (name == "create") {
            return open_file(set_.take_absent(random_), O_CREAT | O_EXCL);
        }
        if (name == "open") {
            return open_file(set_.open(random_), 0);
        }
        if (name == "delete") {
            const std::optional<size_t> index = set_.take_closed(random_);
            if (index) {
                MUST_CALL(unlink(set_.file(*index).path.c_str()));
                set_.deleted(*index);
            }
            return index.has_value();
        }
        if (name == "stat") {
            const std::optional<size_t> index = set_.open(random_);
            if (index) {
                struct stat status;
                MUST_CALL(::stat(set_.file(*index).path.c_str(), &status));
                set_.close(*index);
            }
            return index.has_value();
        }
        if (name == "close") {
            close_file();
        } else if (name == "fsync") {
            MUST_CALL(::fsync(file_));
        } else if (name == "write_whole") {
            for (uint64_t left = set_.file(index_).size_bytes; left > 0;) {
                left -= write_some(file_, std::min(left, io_bytes_), -1);
            }
        } else if (name == "read_whole") {
            MUST_CALL(lseek(file_, 0, SEEK_SET));
            for (ssize_t got = 1; got > 0;) {
                got = MUST_CALL(::read(file_, data_.data(), io_bytes_));
                bytes_read += static_cast<uint64_t>(got);
            }
        } else if (name == "append_random") {
            MUST_CALL(lseek(file_, 0, SEEK_END));
            write_some(file_, 1 + random_() % append_bytes_, -1);
        } else if (name == "append_log") {
            if (log_ < 0) {
                log_ =
                    MUST_CALL(::open(set_.log_path().c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644));
            }
            write_some(log_, 1 + random_() % append_bytes_, -1);
        } else {
            on_one_file(name);
        }
        return true;
    }

    void on_one_file(const std::string& name) {
        if (fixed_ < 0) {
            fixed_ = MUST_CALL(::open(set_.file(0).path.c_str(), O_RDWR));
        }
        const uint64_t blocks = std::max<uint64_t>(1, set_.file(0).size_bytes / io_bytes_);
        if (name == "append_sequential") {
            place_bytes_ += write_some(fixed_, io_bytes_, static_cast<off_t>(place_bytes_));
        } else if (name == "write_random") {
            write_some(fixed_, io_bytes_, static_cast<off_t>(random_() % blocks * io_bytes_));
        } else {
            const uint64_t block =
                name == "read_random" ? random_() % blocks : next_block_++ % blocks;
            bytes_read += static_cast<uint64_t>(MUST_CALL(
                pread(fixed_, data_.data(), io_bytes_, static_cast<off_t>(block * io_bytes_))));
        }
    }

    bool open_file(std::optional<size_t> index, int flags) {
        if (!index) {
            return false;
        }
        close_file();
        index_ = *index;
        file_ = MUST_CALL(::open(set_.file(index_).path.c_str(), O_RDWR | flags, 0644));
        if (flags != 0) {
            set_.created(index_);
        }
        return true;
    }
    void close_file() {
        if (file_ >= 0) {
            MUST_CALL(::close(file_));
            set_.close(index_);
            file_ = -1;
        }
    }
    // place -1: where the file is.
    uint64_t write_some(int file, uint64_t size_bytes, off_t place) {
        const ssize_t done = place < 0 ? ::write(file, data_.data(), size_bytes)
                                       : pwrite(file, data_.data(), size_bytes, place);
        if (MUST_CALL(done) == 0) {
            refuse("a write wrote nothing");
        }
        bytes_written += static_cast<uint64_t>(done);
        return static_cast<uint64_t>(done);
    }

    FileSet& set_;
    const std::vector<std::string> flow_;
    Shared& shared_;
    Random random_;
    const bool is_limited_;
    const uint64_t io_bytes_;
    const uint64_t append_bytes_;
    std::vector<char> data_;
    size_t index_ = 0;
    int file_ = -1;
    int fixed_ = -1;
    int log_ = -1;
    uint64_t place_bytes_ = 0;
    uint64_t next_block_ = 0;
};

void make_files(const FileSet& set, const std::string& folder) {
    Random random(2);
    std::vector<char> data(1U << 20);
    for (char& byte : data) {
        byte = static_cast<char>(random());
    }
    for (const size_t index : set.present()) {
        const FileSet::File& made = set.file(index);
        const int file = MUST_CALL(open(made.path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
        for (uint64_t left = made.size_bytes; left > 0;) {
            left -= static_cast<uint64_t>(
                MUST_CALL(write(file, data.data(), std::min<uint64_t>(left, data.size()))));
        }
        MUST_CALL(close(file));
    }
    const int directory = MUST_CALL(open(folder.c_str(), O_RDONLY | O_DIRECTORY));
    MUST_CALL(syncfs(directory));
    MUST_CALL(close(directory));
}

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int main(int count, char** arguments) {
    Settings settings;
    for (int i = 2; i < count; ++i) {
        const std::string argument = arguments[i];
        const size_t equals = argument.find('=');
        if (equals == std::string::npos || !settings.values.contains(argument.substr(0, equals))) {
            refuse("unknown setting '" + argument + "'");
        }
        settings.values[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    if (count < 2 || settings.values["flow"].empty()) {
        refuse("usage: filebench_load FOLDER flow=NAME,... [KEY=VALUE...]");
    }
    static const std::vector<std::string> kKnown{
        "create",          "open",        "close",        "delete",           "stat",
        "fsync",           "write_whole", "read_whole",   "append_random",    "append_log",
        "read_sequential", "read_random", "write_random", "append_sequential"};
    std::vector<std::string> flow;
    for (size_t start = 0; start <= settings.values["flow"].size();) {
        const size_t comma =
            std::min(settings.values["flow"].find(',', start), settings.values["flow"].size());
        flow.push_back(settings.values["flow"].substr(start, comma - start));
        if (std::find(kKnown.begin(), kKnown.end(), flow.back()) == kKnown.end()) {
            refuse("unknown operation '" + flow.back() + "'");
        }
        start = comma + 1;
    }

    const std::string folder = arguments[1];
    FileSet set(folder, settings);
    make_files(set, folder);
    Shared shared(settings);
    std::vector<std::unique_ptr<Worker>> workers;
    for (uint64_t i = 0; i < settings.number("threads"); ++i) {
        workers.push_back(std::make_unique<Worker>(set, settings, flow, shared, 100 + i));
    }
    shared.running = static_cast<int>(workers.size());
    const double limit_seconds = std::strtod(settings.values["seconds"].c_str(), nullptr);
    const auto operations = [&workers] {
        uint64_t sum = 0;
        for (const auto& worker : workers) {
            sum += worker->operations.load(std::memory_order_relaxed);
        }
        return sum;
    };
    std::vector<uint64_t> timeline;
    std::vector<std::thread> threads;
    const Clock::time_point start = Clock::now();
    Clock::time_point next_tick = start + kTick;
    threads.reserve(workers.size());
    for (const auto& worker : workers) {
        threads.emplace_back([&worker] { worker->run(); });
    }
    while (shared.running > 0 && seconds_since(start) < limit_seconds) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (Clock::now() >= next_tick) {
            timeline.push_back(operations());
            next_tick += kTick;
        }
    }
    shared.must_stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    const double seconds = seconds_since(start);
    const Clock::time_point before_sync = Clock::now();
    const int directory = MUST_CALL(open(folder.c_str(), O_RDONLY | O_DIRECTORY));
    MUST_CALL(syncfs(directory));
    MUST_CALL(close(directory));
    const double sync_seconds = seconds_since(before_sync);
    uint64_t loops = 0;
    uint64_t bytes_read = 0;
    uint64_t bytes_written = 0;
    for (const auto& worker : workers) {
        loops += worker->loops;
        bytes_read += worker->bytes_read;
        bytes_written += worker->bytes_written;
    }
    std::printf(
        "{\"seconds\": %.6f, \"operations\": %llu, \"loops\": %llu, \"bytes_read\": %llu, "
        "\"bytes_written\": %llu, \"sync_seconds\": %.6f, \"timeline_operations\": [",
        seconds, static_cast<unsigned long long>(operations()),
        static_cast<unsigned long long>(loops), static_cast<unsigned long long>(bytes_read),
        static_cast<unsigned long long>(bytes_written), sync_seconds);
    for (size_t i = 0; i < timeline.size(); ++i) {
        std::printf("%s%llu", i == 0 ? "" : ", ", static_cast<unsigned long long>(timeline[i]));
    }
    std::printf("]}\n");
    return 0;
}
