// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/memory_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>

#include "rdma_blk/transport/shm/mapped_memory.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr unsigned kMemfdHuge2MiB = 21U << 26;  // log2 of the size, as in linux/memfd.h
// What must be left when a volume is made.
constexpr uint64_t kSpareBytes = 8U << 20;
constexpr uint64_t kSmallPageBytes = 4096;

Error memory_error() {
    switch (errno) {
        case EPERM:
            return Error::eperm;
        case EINVAL:
            return Error::einval;
        case EFBIG:
            return Error::efbig;
        default:
            return Error::enomem;
    }
}

UniqueDescriptor make_memfd(const std::string& name, uint64_t size_bytes, unsigned extra_flags) {
    UniqueDescriptor memfd(
        memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | extra_flags));
    if (memfd.valid() && ftruncate(memfd.get(), static_cast<off_t>(size_bytes)) != 0) {
        memfd.reset();
    }
    return memfd;
}

bool consists_of_huge_pages(int memfd) {
    struct statfs status {};
    return fstatfs(memfd, &status) == 0 && status.f_type == HUGETLBFS_MAGIC;
}

}  // namespace

Result<std::unique_ptr<MemoryRegion>> MemoryRegion::create(const std::string& name,
                                                           uint64_t size_bytes,
                                                           const MemoryOptions& options) {
    if (options.huge_pages != Wish::no && size_bytes % kHugePageBytes == 0) {
        UniqueDescriptor memfd = make_memfd(name, size_bytes, MFD_HUGETLB | kMemfdHuge2MiB);
        // Huge pages that do not exist are noticed at the latest when they are allocated.
        if (memfd.valid() && fallocate(memfd.get(), 0, 0, static_cast<off_t>(size_bytes)) == 0) {
            auto region = map_whole(std::move(memfd), size_bytes, options, true);
            if (region.ok()) {
                return region;
            }
        }
    }
    if (options.huge_pages == Wish::require) {
        return Error::eperm;
    }
    UniqueDescriptor memfd = make_memfd(name, size_bytes, 0);
    if (!memfd.valid()) {
        return memory_error();
    }
    return map_whole(std::move(memfd), size_bytes, options, true);
}

Result<std::unique_ptr<MemoryRegion>> MemoryRegion::adopt(UniqueDescriptor memfd,
                                                          uint64_t size_bytes,
                                                          const MemoryOptions& options) {
    return map_whole(std::move(memfd), size_bytes, options, false);
}

Result<std::unique_ptr<MemoryRegion>> MemoryRegion::map_whole(UniqueDescriptor memfd,
                                                              uint64_t size_bytes,
                                                              const MemoryOptions& options,
                                                              bool is_new) {
    struct stat status {};
    if (fstat(memfd.get(), &status) != 0 || size_bytes == 0 ||
        static_cast<uint64_t>(status.st_size) < size_bytes) {
        return Error::einval;
    }
    // May be sealed already, when it is adopted. Clients may have it for writing, and no seal of theirs shall
    // keep it from growing.
    (void)fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
    // Else anybody with a descriptor for reading could get one for writing from /proc.
    (void)fchmod(memfd.get(), S_IRUSR | S_IWUSR);
    std::unique_ptr<MemoryRegion> region(new (std::nothrow) MemoryRegion());
    if (!region) {
        return Error::enomem;
    }
    region->has_huge_pages_ = consists_of_huge_pages(memfd.get());
    region->memfd_ = std::move(memfd);
    region->size_bytes_ = size_bytes;
    TRY(region->map(options));
    if (is_new) {
        TRY(region->populate(0, size_bytes));
    }
    TRY(region->lock_from(0));
    return region;
}

Result<void> MemoryRegion::map(const MemoryOptions& options) {
    const AddressRange range = TRY(reserve_addresses(size_bytes_));
    address_ = range.begin;
    reserved_bytes_ = range.size_bytes;
    if (size_bytes_ > reserved_bytes_) {
        return Error::efbig;
    }
    if (mmap(address_, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd_.get(),
             0) == MAP_FAILED) {
        return memory_error();
    }
    if (options.huge_pages == Wish::try_it) {
        (void)madvise(address_, size_bytes_, MADV_HUGEPAGE);
    }
    // Memory of volumes in a core dump would be as large as the volumes, and is nobody's business.
    (void)madvise(address_, size_bytes_, MADV_DONTDUMP);
    lock_ = options.lock;
    return {};
}

// What does not fit ends whoever touches it: the kernel kills a process of a control group that has no memory left.
// So a child touches each page first, and locks what is to be locked, and offers itself as the one to be killed. What it
// has touched stays. Only system calls there: other threads of this process may have held any lock.
Result<void> MemoryRegion::populate(uint64_t offset_bytes, uint64_t end_bytes) const {
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) {
        return Error::enomem;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        if (getppid() != parent || score < 0 || write(score, "1000", 4) != 4) {
            _exit(EXIT_FAILURE);
        }
        // Nothing of the server's is of use here; and what it closes meanwhile would stay open by this.
        (void)close_range(0, ~0U, 0);
        // Comes free when the child is killed: else this process could need a page before it has given back what
        // the child has touched, and would be the next one to be killed.
        (void)mmap(nullptr, kSpareBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        for (uint64_t page = offset_bytes; page < end_bytes; page += kSmallPageBytes) {
            __atomic_fetch_or(address_ + page, 0, __ATOMIC_RELAXED);
        }
        if (lock_ != Wish::no) {  // an error is lock_from()'s
            (void)mlock(address_ + offset_bytes, end_bytes - offset_bytes);
        }
        _exit(EXIT_SUCCESS);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS ? Result<void>()
                                                                    : Error::enomem;
}

Result<void> MemoryRegion::lock_from(uint64_t offset_bytes) {
    if (lock_ == Wish::no) {
        return {};
    }
    const bool is_locked = mlock(address_ + offset_bytes, size_bytes_ - offset_bytes) == 0;
    if (!is_locked && lock_ == Wish::require) {
        return Error::eperm;
    }
    is_locked_ = is_locked;
    return {};
}

Result<UniqueDescriptor> MemoryRegion::open_again(bool for_writing) const {
    const std::string path = "/proc/self/fd/" + std::to_string(memfd_.get());
    UniqueDescriptor opened(open(path.c_str(), (for_writing ? O_RDWR : O_RDONLY) | O_CLOEXEC));
    if (!opened.valid()) {
        return static_cast<Error>(errno);
    }
    return opened;
}

MemoryRegion::~MemoryRegion() {
    if (address_ != nullptr) {
        munmap(address_, reserved_bytes_);
    }
}

// Puts a part of the file in the place of addresses that were kept for it.
bool MemoryRegion::map_more(uint64_t offset_bytes, uint64_t length_bytes) {
    unsigned char* const place = address_ + offset_bytes;
    // A mapping of huge pages takes them at once, and where there are too few the addresses are no longer kept: anything could
    // be mapped there next.
    if ((!has_huge_pages_ || fallocate(memfd_.get(), 0, static_cast<off_t>(offset_bytes),
                                       static_cast<off_t>(length_bytes)) == 0) &&
        mmap(place, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memfd_.get(),
             static_cast<off_t>(offset_bytes)) != MAP_FAILED) {
        return true;
    }
    (void)mmap(place, length_bytes, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    (void)fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes));
    return false;
}

Result<void> MemoryRegion::grow(uint64_t size_bytes) {
    if (size_bytes < size_bytes_ || (has_huge_pages_ && size_bytes % kHugePageBytes != 0)) {
        return Error::einval;
    }
    if (size_bytes > reserved_bytes_) {
        return Error::efbig;
    }
    if (size_bytes == size_bytes_) {
        return {};
    }
    // After an attempt that failed the file is as long as was wanted then, and cannot be made shorter.
    struct stat status {};
    if (fstat(memfd_.get(), &status) != 0 ||
        (static_cast<uint64_t>(status.st_size) < size_bytes &&
         ftruncate(memfd_.get(), static_cast<off_t>(size_bytes)) != 0)) {
        return memory_error();
    }
    const uint64_t old_size_bytes = size_bytes_;
    const uint64_t from = old_size_bytes / kHugePageBytes * kHugePageBytes;
    // The last page is mapped already: a size need not be a multiple of the page.
    const uint64_t unmapped =
        (old_size_bytes + kSmallPageBytes - 1) / kSmallPageBytes * kSmallPageBytes;
    if (size_bytes > unmapped && !map_more(unmapped, size_bytes - unmapped)) {
        return Error::enomem;
    }
    (void)madvise(address_ + from, size_bytes - from, MADV_DONTDUMP);
    size_bytes_ = size_bytes;
    Result<void> grown = populate(old_size_bytes, size_bytes);
    if (grown.ok()) {
        grown = lock_from(from);
    }
    if (!grown.ok()) {
        undo_growth(old_size_bytes);
    }
    return grown;
}

// The file stays as long as it is.
void MemoryRegion::undo_growth(uint64_t size_bytes) {
    const uint64_t length = size_bytes_ - size_bytes;
    size_bytes_ = size_bytes;  // so that the next attempt is one
    (void)munlock(address_ + size_bytes, length);
    (void)fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(size_bytes), static_cast<off_t>(length));
}

}  // namespace tiffin::rdma_blk
