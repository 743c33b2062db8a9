// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/filebench/file_set.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tiffin::bench {

namespace {

constexpr double kShape = 1.5;  // of Filebench's sizes

std::optional<size_t> take_out(std::vector<size_t>& from, size_t place) {
    if (from.empty()) {
        return std::nullopt;
    }
    std::swap(from[place], from.back());
    const size_t index = from.back();
    from.pop_back();
    return index;
}

}  // namespace

FileSet::FileSet(std::string folder, const Settings& settings) : folder_(std::move(folder)) {
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

void FileSet::make_files() const {
    Random random(2);
    std::vector<char> data(1U << 20);
    for (char& byte : data) {
        byte = static_cast<char>(random());
    }
    for (const size_t index : present_) {
        const int file =
            MUST_CALL(::open(files_[index].path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644));
        for (uint64_t left = files_[index].size_bytes; left > 0;) {
            left -= static_cast<uint64_t>(
                MUST_CALL(write(file, data.data(), std::min<uint64_t>(left, data.size()))));
        }
        MUST_CALL(::close(file));
    }
    sync_file_system(folder_);
}

std::optional<size_t> FileSet::take_absent(Random& random) {
    const std::lock_guard guard(lock_);
    return take_out(absent_, absent_.empty() ? 0 : random() % absent_.size());
}

void FileSet::created(size_t index) {
    const std::lock_guard guard(lock_);
    ++files_[index].open_count;
    present_.push_back(index);
}

std::optional<size_t> FileSet::open(Random& random) {
    const std::lock_guard guard(lock_);
    if (present_.empty()) {
        return std::nullopt;
    }
    const size_t index = present_[random() % present_.size()];
    ++files_[index].open_count;
    return index;
}

void FileSet::close(size_t index) {
    const std::lock_guard guard(lock_);
    --files_[index].open_count;
}

std::optional<size_t> FileSet::take_closed(Random& random) {
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

void FileSet::deleted(size_t index) {
    const std::lock_guard guard(lock_);
    absent_.push_back(index);
}

}  // namespace tiffin::bench
