// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory mappings and direct I/O: what only exists where a kernel caches for the file system.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/suite/helpers.h"

namespace tiffin::suite {
namespace {

constexpr size_t kPage = 4096;

// A shared mapping that ends with its scope.
class Mapping {
  public:
    Mapping(FileSystemUnderTest& fs, int file, size_t length, int protection)
        : fs_(fs), length_(length) {
        REQUIRE_OK(fs_.map(file, 0, length, protection, memory_));
    }
    ~Mapping() { fs_.unmap(memory_, length_); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    unsigned char* memory() const { return memory_; }
    void sync() { CHECK_OK(fs_.sync_map(memory_, length_)); }
    std::string text(size_t offset, size_t size) const {
        return std::string(reinterpret_cast<char*>(memory_) + offset, size);
    }
    void put(size_t offset, const std::string& data) {
        std::memcpy(memory_ + offset, data.data(), data.size());
    }

  private:
    FileSystemUnderTest& fs_;
    size_t length_;
    unsigned char* memory_ = nullptr;
};

SUITE_CASE(mmap, reads_what_is_in_the_file, {Feature::mmap}) {
    std::string data = pattern(10 * kPage + 100);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDONLY);
    Mapping mapping(fs, file, 11 * kPage, PROT_READ);
    check_content(mapping.text(0, data.size()), data);
    // Behind the end of the file there are zeros up to the end of the page.
    check_content(mapping.text(data.size(), kPage - 100), std::string(kPage - 100, '\0'));
}

SUITE_CASE(mmap, writes_reach_the_file, {Feature::mmap}) {
    std::string data = pattern(20 * kPage);
    write_file(fs, "f", data);
    File file(fs, "f", O_RDWR);
    {
        Mapping mapping(fs, file, 20 * kPage, PROT_READ | PROT_WRITE);
        mapping.put(5000, "mapped");
        data.replace(5000, 6, "mapped");
        check_content(read_at(fs, file, 0, data.size()), data);
        mapping.sync();
        mapping.put(19 * kPage, "end");
        data.replace(19 * kPage, 3, "end");
    }
    check_file(fs, "f", data);
    CHECK_OK(fs.fsync(file));
    check_file(fs, "f", data);
}

SUITE_CASE(mmap, sees_writes, {Feature::mmap}) {
    write_file(fs, "f", pattern(4 * kPage));
    File file(fs, "f", O_RDWR);
    Mapping mapping(fs, file, 4 * kPage, PROT_READ);
    check_content(mapping.text(kPage, 10), pattern(4 * kPage).substr(kPage, 10));
    write_at(fs, file, kPage, "0123456789");
    check_content(mapping.text(kPage, 10), "0123456789");
}

SUITE_CASE(mmap, into_a_hole, {Feature::mmap}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, 100 * kPage));
    std::string expected(100 * kPage, '\0');
    {
        Mapping mapping(fs, file, 100 * kPage, PROT_READ | PROT_WRITE);
        for (size_t page = 0; page < 100; page += 7) {
            mapping.put(page * kPage + page, "hole");
            expected.replace(page * kPage + page, 4, "hole");
        }
    }
    CHECK_OK(fs.fsync(file));
    check_file(fs, "f", expected);
}

SUITE_CASE(mmap, two_mappings_share, {Feature::mmap}) {
    write_file(fs, "f", pattern(kPage));
    File a(fs, "f", O_RDWR);
    File b(fs, "f", O_RDWR);
    Mapping first(fs, a, kPage, PROT_READ | PROT_WRITE);
    Mapping second(fs, b, kPage, PROT_READ | PROT_WRITE);
    first.put(10, "one");
    check_content(second.text(10, 3), "one");
    second.put(20, "two");
    check_content(first.text(20, 3), "two");
}

SUITE_CASE(mmap, outlives_descriptor_and_name, {Feature::mmap}) {
    write_file(fs, "f", pattern(kPage));
    File file(fs, "f", O_RDWR);
    REQUIRE_OK(fs.link("f", "g"));
    {
        Mapping mapping(fs, file, kPage, PROT_READ | PROT_WRITE);
        file.close();
        REQUIRE_OK(fs.unlink("f"));
        mapping.put(0, "alive");
        mapping.sync();
    }
    check_content(read_file(fs, "g").substr(0, 5), "alive");
}

SUITE_CASE(mmap, of_an_unlinked_file, {Feature::mmap}) {
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, 10 * kPage));
    REQUIRE_OK(fs.unlink("f"));
    Mapping mapping(fs, file, 10 * kPage, PROT_READ | PROT_WRITE);
    mapping.put(5 * kPage, "orphan");
    mapping.sync();
    check_content(read_at(fs, file, 5 * kPage, 6), "orphan");
}

// Bytes that a program stores behind the end of the file must not turn up when it grows.
SUITE_CASE(mmap, stores_behind_the_end_stay_there, {Feature::mmap, Feature::mmap_tail}) {
    write_file(fs, "f", pattern(100));
    File file(fs, "f", O_RDWR);
    {
        Mapping mapping(fs, file, kPage, PROT_READ | PROT_WRITE);
        mapping.put(200, "behind the end");
        mapping.sync();
    }
    CHECK_OK(fs.fsync(file));
    CHECK_OK(fs.ftruncate(file, 1000));
    check_file(fs, "f", pattern(100) + std::string(900, '\0'));
}

SUITE_CASE(mmap, moves_the_modification_time, {Feature::mmap}) {
    write_file(fs, "f", pattern(kPage));
    File file(fs, "f", O_RDWR);
    CHECK_OK(fs.fsync(file));
    std::string moved = times_moved_by(fs, "f", [&] {
        Mapping mapping(fs, file, kPage, PROT_READ | PROT_WRITE);
        mapping.put(0, "x");
        mapping.sync();
    });
    CHECK_TRUE(moved.find("mc") != std::string::npos);
}

SUITE_CASE(mmap, large_and_random, {Feature::mmap}) {
    constexpr size_t size = 8 << 20;
    std::string data(size, '\0');
    File file(fs, "f", O_RDWR | O_CREAT);
    CHECK_OK(fs.ftruncate(file, size));
    {
        Mapping mapping(fs, file, size, PROT_READ | PROT_WRITE);
        uint64_t state = 5;
        for (int i = 0; i < 3000; ++i) {
            state = state * 6364136223846793005ULL + 1442695040888963407ULL;
            size_t offset = (state >> 33) % (size - 100);
            std::string patch = pattern(1 + (state >> 20) % 99, state);
            mapping.put(offset, patch);
            data.replace(offset, patch.size(), patch);
            if (i % 1000 == 999) {
                mapping.sync();
            }
        }
    }
    check_file(fs, "f", data);
}

// ---- O_DIRECT ------------------------------------------------------------------------------------

struct Free {
    void operator()(char* memory) const { std::free(memory); }
};

std::unique_ptr<char, Free> aligned(size_t size) {
    void* memory = nullptr;
    if (::posix_memalign(&memory, kPage, size) != 0) {
        end_case();
    }
    return std::unique_ptr<char, Free>(static_cast<char*>(memory));
}

SUITE_CASE(direct, writes_and_reads, {Feature::direct_io}) {
    constexpr size_t size = 1 << 20;
    File file(fs, "f", O_RDWR | O_CREAT | O_DIRECT);
    auto buffer = aligned(size);
    std::string data = pattern(size);
    std::memcpy(buffer.get(), data.data(), size);
    CHECK_EQUAL(fs.pwrite(file, buffer.get(), size, 0), static_cast<int64_t>(size));
    CHECK_EQUAL(fs.pwrite(file, buffer.get(), kPage, 4 * size), static_cast<int64_t>(kPage));
    std::memset(buffer.get(), 0, size);
    CHECK_EQUAL(fs.pread(file, buffer.get(), size, 0), static_cast<int64_t>(size));
    check_content(std::string(buffer.get(), size), data);
    check_file(fs, "f", data + std::string(3 * size, '\0') + data.substr(0, kPage));
}

SUITE_CASE(direct, is_coherent_with_the_cache, {Feature::direct_io}) {
    File direct(fs, "f", O_RDWR | O_CREAT | O_DIRECT);
    File cached(fs, "f", O_RDWR);
    auto buffer = aligned(16 * kPage);
    for (uint64_t i = 0; i < 20; ++i) {
        std::string data = pattern(16 * kPage, i);
        write_at(fs, cached, 0, data);
        CHECK_EQUAL(fs.pread(direct, buffer.get(), 16 * kPage, 0),
                    static_cast<int64_t>(16 * kPage));
        check_content(std::string(buffer.get(), 16 * kPage), data);
        std::string patch = pattern(kPage, i + 1000);
        std::memcpy(buffer.get(), patch.data(), kPage);
        auto offset = static_cast<int64_t>(i % 16 * kPage);
        CHECK_EQUAL(fs.pwrite(direct, buffer.get(), kPage, offset), static_cast<int64_t>(kPage));
        check_content(read_at(fs, cached, offset, kPage), patch);
    }
}

SUITE_CASE(direct, stops_at_the_end_of_file, {Feature::direct_io}) {
    write_file(fs, "f", pattern(5000));
    File file(fs, "f", O_RDONLY | O_DIRECT);
    auto buffer = aligned(4 * kPage);
    CHECK_EQUAL(fs.pread(file, buffer.get(), 4 * kPage, 0), 5000);
    check_content(std::string(buffer.get(), 5000), pattern(5000));
    CHECK_EQUAL(fs.pread(file, buffer.get(), kPage, 2 * kPage), 0);
}

SUITE_CASE(direct, append, {Feature::direct_io}) {
    File file(fs, "f", O_WRONLY | O_CREAT | O_DIRECT | O_APPEND);
    auto buffer = aligned(kPage);
    std::string data = pattern(kPage);
    std::memcpy(buffer.get(), data.data(), kPage);
    for (int i = 0; i < 5; ++i) {
        CHECK_EQUAL(fs.write(file, buffer.get(), kPage), static_cast<int64_t>(kPage));
    }
    check_file(fs, "f", data + data + data + data + data);
}

}  // namespace
}  // namespace tiffin::suite
