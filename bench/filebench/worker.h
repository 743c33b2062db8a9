// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A thread of a workload: it repeats a list of operations.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/filebench/file_set.h"
#include "bench/filebench/settings.h"

namespace tiffin::bench {

// What all threads of a workload have in common.
struct Shared {
    explicit Shared(const Settings& settings)
        : loops_left(static_cast<int64_t>(settings.number("loops"))) {}
    std::atomic<bool> must_stop = false;
    std::atomic<int> running = 0;
    std::chrono::steady_clock::time_point end;  // by the last one that runs
    std::atomic<int64_t> loops_left;
};

// Made before its thread and read after it, but for `operations`.
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
        const auto now = std::chrono::steady_clock::now();
        if (--shared_.running == 0) {
            shared_.end = now;
        }
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

}  // namespace tiffin::bench
