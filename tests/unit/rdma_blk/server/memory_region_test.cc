// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory of a volume: huge pages and locking, which need what the machine may not have or not allow.
#include "rdma_blk/server/memory_region.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kSmallBytes = 64 << 10;

uint64_t number_in(const std::string& path) {
    uint64_t number = 0;
    std::ifstream(path) >> number;
    return number;
}

uint64_t huge_pages(const char* what) {
    return number_in(std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + what);
}

// The machine's huge pages are for one of these tests at a time.
class TurnWithHugePages {
  public:
    TurnWithHugePages() : file_(open("/proc/sys/vm/nr_hugepages", O_RDONLY | O_CLOEXEC)) {
        (void)flock(file_.get(), LOCK_EX);
    }

  private:
    const UniqueDescriptor file_;
};

// Pages that nobody else has, while this exists; as far as the machine allows it.
class ReservedHugePages {
  public:
    explicit ReservedHugePages(uint64_t count) : before_(huge_pages("nr_hugepages")) {
        set(before_ + count);
    }
    ~ReservedHugePages() { set(before_); }
    ReservedHugePages(const ReservedHugePages&) = delete;
    ReservedHugePages& operator=(const ReservedHugePages&) = delete;

  private:
    static void set(uint64_t count) {
        std::ofstream("/proc/sys/vm/nr_hugepages") << count << std::flush;
    }
    const uint64_t before_;
};

bool are_huge_pages_free() {
    return huge_pages("free_hugepages") != 0 || huge_pages("nr_overcommit_hugepages") != 0;
}

UniqueDescriptor another_descriptor(const MemoryRegion& region) {
    return UniqueDescriptor(dup(region.descriptor()));
}

uint64_t locked_bytes() {
    std::ifstream status("/proc/self/status");
    std::string word;
    uint64_t kib = 0;
    while (status >> word && word != "VmLck:") {
    }
    status >> kib;
    return kib << 10;
}

// The sanitizers take mlock() for themselves, and lock nothing.
bool is_locking_replaced() {
    constexpr size_t kPageBytes = 4096;
    void* const page =
        mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const uint64_t before = locked_bytes();
    const bool is_replaced =
        page != MAP_FAILED && mlock(page, kPageBytes) == 0 && locked_bytes() == before;
    munmap(page, kPageBytes);
    return is_replaced;
}

// Root may lock what it likes, unless it lacks the capability; and that a thread can give up for itself.
void run_without_the_right_to_lock(const std::function<void()>& work) {
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    std::thread([&] {
        __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
        __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
        ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
        data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
        work();
    }).join();
    EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

class MemoryRegionTest : public ServerFixture {};

TEST_F(MemoryRegionTest, HugePagesThatDoNotExistAreRefusedOrDoneWithout) {
    const TurnWithHugePages turn;
    // Whatever the machine has, no huge page fits these.
    EXPECT_EQ(MemoryRegion::create("odd", kHugePageBytes + 4096, {Wish::require, Wish::no}).error(),
              Error::eperm);
    if (are_huge_pages_free()) {
        GTEST_SKIP() << "not run: this machine has free huge pages";
    }
    EXPECT_EQ(MemoryRegion::create("required", kHugePageBytes, {Wish::require, Wish::no}).error(),
              Error::eperm);
    const auto tried =
        MUST(MemoryRegion::create("tried", kHugePageBytes, {Wish::try_it, Wish::no}));
    EXPECT_FALSE(tried->has_huge_pages());
    EXPECT_TRUE(std::all_of(tried->data(), tried->data() + kHugePageBytes,
                            [](unsigned char byte) { return byte == 0; }));
    ASSERT_TRUE(tried->grow(kHugePageBytes + 4096).ok());  // of small pages
    tried->data()[kHugePageBytes] = 1;
    const auto adopted = MUST(
        MemoryRegion::adopt(another_descriptor(*tried), kHugePageBytes, {Wish::try_it, Wish::no}));
    EXPECT_FALSE(adopted->has_huge_pages());

    configuration_.huge_pages = Wish::require;
    std::string problem;
    server_ = std::make_unique<Server>(configuration_, keeper_);
    ASSERT_TRUE(server_->start(problem).ok()) << problem;
    EXPECT_EQ(server_->create_volume({"volume", kVolumeBytes, 4096, ""}, problem).error(),
              Error::eperm);
    EXPECT_NE(problem.find("vm.nr_hugepages"), std::string::npos) << problem;
}

TEST_F(MemoryRegionTest, HugePagesAreUsedAndFoundAgain) {
    constexpr uint64_t kPages = kVolumeBytes / kHugePageBytes;
    const TurnWithHugePages turn;
    const ReservedHugePages reserved(kPages + 1);
    if (huge_pages("free_hugepages") < kPages + 1) {
        GTEST_SKIP() << "not run: no huge pages can be reserved here";
    }
    const uint64_t free_before = huge_pages("free_hugepages");
    configuration_.huge_pages = Wish::require;
    start();
    EXPECT_EQ(huge_pages("free_hugepages"), free_before - kPages);
    EXPECT_TRUE(volume().info(0).has_huge_pages);
    auto client = open(1);
    EXPECT_EQ(client->write(kVolumeBytes - 4, "last").outcome,
              static_cast<uint8_t>(Outcome::executed));
    configuration_.huge_pages = Wish::no;  // the memory is what it is
    restart();
    EXPECT_TRUE(volume().was_memory_kept());
    EXPECT_TRUE(volume().info(0).has_huge_pages);
    EXPECT_EQ(std::memcmp(memory() + kVolumeBytes - 4, "last", 4), 0);
    EXPECT_EQ(volume().resize(kVolumeBytes + 4096).error(), Error::einval);
    ASSERT_TRUE(volume().resize(kVolumeBytes + kHugePageBytes).ok());
    memory()[kVolumeBytes] = 1;
    EXPECT_EQ(huge_pages("free_hugepages"), free_before - kPages - 1);
}

TEST_F(MemoryRegionTest, MemoryIsLockedOrRefused) {
    if (is_locking_replaced()) {
        GTEST_SKIP() << "not run: this sanitizer does not lock memory";
    }
    const uint64_t locked_before = locked_bytes();
    auto locked = MemoryRegion::create("locked", kSmallBytes, {Wish::no, Wish::require});
    if (!locked.ok()) {
        EXPECT_EQ(locked.error(), Error::eperm);
        GTEST_SKIP() << "not run: no memory may be locked here";
    }
    EXPECT_TRUE((*locked)->is_locked());
    EXPECT_EQ(locked_bytes(), locked_before + kSmallBytes);
    run_without_the_right_to_lock([&] {
        EXPECT_EQ(MemoryRegion::create("required", kSmallBytes, {Wish::no, Wish::require}).error(),
                  Error::eperm);
        const auto tried =
            MUST(MemoryRegion::create("tried", kSmallBytes, {Wish::no, Wish::try_it}));
        EXPECT_FALSE(tried->is_locked());
        tried->data()[kSmallBytes - 1] = 1;
        for (int attempt = 0; attempt < 2; attempt++) {
            EXPECT_EQ((*locked)->grow(2 * kSmallBytes).error(), Error::eperm);
            EXPECT_EQ((*locked)->size_bytes(), kSmallBytes);
            EXPECT_TRUE((*locked)->is_locked());
        }
    });
    ASSERT_TRUE((*locked)->grow(2 * kSmallBytes).ok());
    EXPECT_TRUE((*locked)->is_locked());
    EXPECT_EQ(locked_bytes(), locked_before + 2 * kSmallBytes);
}

TEST_F(MemoryRegionTest, AServerThatMayNotLockSaysSo) {
    if (is_locking_replaced()) {
        GTEST_SKIP() << "not run: this sanitizer does not lock memory";
    }
    if (!MemoryRegion::create("locked", kVolumeBytes, {Wish::no, Wish::require}).ok()) {
        GTEST_SKIP() << "not run: no memory may be locked here";
    }
    configuration_.lock_memory = Wish::require;
    start();
    EXPECT_TRUE(volume().info(0).is_locked);
    restart();
    EXPECT_TRUE(volume().info(0).is_locked);
    run_without_the_right_to_lock([&] {
        std::string problem;
        EXPECT_EQ(server_->create_volume({"other", kSmallBytes, 4096, ""}, problem).error(),
                  Error::eperm);
        EXPECT_NE(problem.find("ulimit -l"), std::string::npos) << problem;
        EXPECT_EQ(server_->find_volume("other"), nullptr);
    });
}

}  // namespace
}  // namespace tiffin::rdma_blk
