// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/write_back_host.h"

#include <algorithm>
#include <iterator>

namespace tiffin::test {
namespace {

constexpr uint64_t kPageBytes = vfs::kBlockBytes;
constexpr uint64_t kRequestPages = 256;
constexpr uint32_t kFlags = vfs::write_flag::write_back | vfs::write_flag::keep_times;

}  // namespace

void WriteBackHost::write(vfs::NodeId node, uint64_t offset_bytes, std::string_view data) {
    File& file = files_[node];
    const uint64_t end = offset_bytes + data.size();
    if (file.content.size() < end) {
        file.content.resize(end);
    }
    file.content.replace(offset_bytes, data.size(), data);
    for (uint64_t page = offset_bytes / kPageBytes; page * kPageBytes < end; ++page) {
        file.dirty_pages.insert(page);
    }
}

void WriteBackHost::write_back(vfs::NodeId node, uint32_t requests) {
    File& file = files_[node];
    while (!file.dirty_pages.empty() && requests-- > 0) {
        // Anywhere, and from there as far as pages are neighbours.
        auto first = file.dirty_pages.lower_bound(random_() % (*file.dirty_pages.rbegin() + 1));
        auto last = first;
        while (std::next(last) != file.dirty_pages.end() && *std::next(last) == *last + 1 &&
               *std::next(last) - *first < kRequestPages) {
            ++last;
        }
        const uint64_t first_page = *first;
        const uint64_t end_page = *last + 1;
        // Written or not, the kernel counts them as clean.
        file.dirty_pages.erase(first, std::next(last));
        send(node, file, first_page, end_page);
        (void)file_system_.get_attributes(node).ok();
    }
}

void WriteBackHost::send(vfs::NodeId node, File& file, uint64_t first_page, uint64_t end_page) {
    const uint64_t offset = first_page * kPageBytes;
    const uint64_t end = std::min<uint64_t>(end_page * kPageBytes, file.content.size());
    const vfs::IoVector buffer{file.content.data() + offset, end - offset};
    const Result<size_t> written =
        file_system_.write(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1), kFlags);
    if (!written.ok()) {
        ++failed_requests_;
        file.failure = written.error();
    } else if (written.value() < end - offset) {
        ++short_answers_;
    }
}

Result<void> WriteBackHost::fsync(vfs::NodeId node) {
    write_back(node);
    File& file = files_[node];
    if (!file.failure.ok()) {
        const Error error = file.failure.error();
        file.failure = Result<void>();
        return error;
    }
    return file_system_.fsync(node, false);
}

}  // namespace tiffin::test
