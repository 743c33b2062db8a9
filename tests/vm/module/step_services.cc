// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The kernel's half of fs/vfs/host.h, function by function, and the smallest file system on it.
#include <atomic>

#include "fs/hello/hello.h"
#include "fs/vfs/host.h"
#include "tests/vm/module/bench.h"
#include "tests/vm/module/core_test.h"

namespace tiffin::vm {
namespace {

bool is_aligned(const void* address, size_t alignment) {
    return (reinterpret_cast<uintptr_t>(address) & (alignment - 1)) == 0;
}

Result<void> check_memory() {
    // Several of each, since one alone may be aligned by luck.
    constexpr size_t kSizes[] = {0,   1,   8,   16,   24,   40,    72,    96,     100,
                                 144, 192, 200, 1000, 4096, 12288, 40000, 300000, 3U << 20};
    for (const size_t size_bytes : kSizes) {
        void* memory[8];
        for (void*& one : memory) {
            one = host::allocate(size_bytes);
            CHECK(one != nullptr && is_aligned(one, 16));
            __builtin_memset(one, 0xa5, size_bytes);
        }
        for (void* one : memory) {
            host::release(one, size_bytes);
        }
    }
    for (const size_t size_bytes : {4096UL, 12288UL, 65536UL, 5UL << 20}) {
        void* pages = host::allocate_pages(size_bytes);
        CHECK(pages != nullptr && is_aligned(pages, 4096));
        __builtin_memset(pages, 0xa5, size_bytes);
        host::release_pages(pages, size_bytes);
    }
    host::release(nullptr, 16);
    host::release_pages(nullptr, 4096);
    // More than any machine has: refused, and no warning.
    CHECK(host::allocate(size_t{1} << 60) == nullptr);
    return {};
}

// Two threads that take turns.
struct Turns {
    static constexpr uint32_t kRounds = 200;
    host::Mutex mutex{host::LockClass::leaf};
    host::Condition changed;
    uint32_t turn = 0;

    void take(uint32_t parity) {
        for (uint32_t i = 0; i < kRounds; ++i) {
            MutexLock lock(mutex);
            while (turn % 2 != parity) {
                changed.wait(mutex);
            }
            ++turn;
            changed.notify_one();
        }
    }
};

Result<void> check_conditions() {
    Turns turns;
    host::Thread other;
    CHECK_OK(other.start(
        "a-name-that-is-too-long", [](void* here) { static_cast<Turns*>(here)->take(1); }, &turns));
    turns.take(0);
    other.join();
    CHECK(turns.turn == 2 * Turns::kRounds);

    MutexLock lock(turns.mutex);
    const uint64_t start_ns = host::monotonic_ns();
    CHECK(!turns.changed.wait_for(turns.mutex, 2000));
    CHECK(host::monotonic_ns() - start_ns >= 2000000);
    return {};
}

Result<void> check_long_timeout() {
    struct Shared {
        host::Mutex mutex{host::LockClass::leaf};
        host::Condition changed;
        bool done = false;
    } shared;
    host::Thread other;
    CHECK_OK(other.start(
        "tiffin-notify",
        [](void* argument) {
            auto* here = static_cast<Shared*>(argument);
            MutexLock lock(here->mutex);
            here->done = true;
            here->changed.notify_all();
        },
        &shared));
    bool notified = true;
    {
        MutexLock lock(shared.mutex);
        while (!shared.done) {
            notified = shared.changed.wait_for(shared.mutex, UINT64_MAX) && notified;
        }
    }
    other.join();
    CHECK(notified);
    return {};
}

Result<void> check_locks() {
    host::Mutex mutex(host::LockClass::leaf);
    CHECK(mutex.try_lock());
    CHECK(!mutex.try_lock());
    mutex.unlock();
    host::SharedMutex shared(host::LockClass::leaf);
    CHECK(shared.try_lock_shared());
    CHECK(shared.try_lock_shared());
    CHECK(!shared.try_lock());
    shared.unlock_shared();
    shared.unlock_shared();
    shared.lock();
    CHECK(!shared.try_lock_shared());
    shared.unlock();
    return {};
}

// A semaphore on the waiter's stack, posted by an interrupt.
Result<void> check_semaphore() {
    host::Semaphore permits(2);
    permits.wait();
    permits.wait();
    for (uint32_t i = 0; i < 100; ++i) {
        struct Waiter {
            host::Semaphore done;
            bool in_interrupt = false;
        } waiter;
        tiffin_interrupt* interrupt = tiffin_interrupt_create(
            [](void* argument) {
                auto* here = static_cast<Waiter*>(argument);
                here->in_interrupt = tiffin_in_interrupt();
                here->done.post();
            },
            &waiter);
        CHECK(interrupt != nullptr);
        tiffin_interrupt_raise(interrupt);
        waiter.done.wait();
        tiffin_interrupt_destroy(interrupt);
        CHECK(waiter.in_interrupt);
    }
    return {};
}

Result<void> check_threads() {
    std::atomic<uint32_t> ran{0};
    host::Thread threads[4];
    CHECK(!threads[0].running());
    for (host::Thread& thread : threads) {
        CHECK_OK(thread.start(
            "tiffin-count",
            [](void* counter) { static_cast<std::atomic<uint32_t>*>(counter)->fetch_add(1); },
            &ran));
    }
    for (host::Thread& thread : threads) {
        CHECK(thread.running());
        thread.join();
        CHECK(!thread.running());
    }
    CHECK(ran == 4);
    return {};
}

Result<void> check_time_and_chance() {
    uint64_t last_ns = host::monotonic_ns();
    for (uint32_t i = 0; i < 1000; ++i) {
        const uint64_t now_ns = host::monotonic_ns();
        CHECK(now_ns >= last_ns);
        last_ns = now_ns;
    }
    CHECK(host::realtime_ns() > int64_t{1600000000} * 1000000000);
    uint64_t first[2] = {};
    uint64_t second[2] = {};
    host::random_bytes(first, sizeof first);
    host::random_bytes(second, sizeof second);
    CHECK(__builtin_memcmp(first, second, sizeof first) != 0);
    return {};
}

// One bit at a time, from the definition.
uint32_t slow_crc32c(const unsigned char* data, size_t size_bytes) {
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < size_bytes; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78U : 0);
        }
    }
    return ~crc;
}

Result<void> check_crc32c() {
    CHECK(host::crc32c(0, "123456789", 9) == 0xe3069283);
    CHECK(host::crc32c(0, "", 0) == 0);
    CHECK(host::crc32c(host::crc32c(0, "1234", 4), "56789", 5) == 0xe3069283);
    // Longer than one piece of the host's loop: equal to the sum of its parts.
    Buffer buffer;
    CHECK_OK(buffer.open());
    buffer.fill(7, 0, kBufferBytes);
    uint32_t in_parts = 0;
    for (uint64_t offset = 0; offset < kBufferBytes; offset += 4096) {
        in_parts = host::crc32c(in_parts, buffer.data() + offset, 4096);
    }
    CHECK(host::crc32c(0, buffer.data(), kBufferBytes) == in_parts);
    // All remainders of lengths, alignments, and one or more rounds of its streams.
    const auto* bytes = reinterpret_cast<const unsigned char*>(buffer.data());
    for (size_t length = 0; length < 20; ++length) {
        CHECK(host::crc32c(0, bytes + length, length) == slow_crc32c(bytes + length, length));
    }
    for (size_t length = 4075; length < 4100; ++length) {
        CHECK(host::crc32c(0, bytes + length % 9, length) ==
              slow_crc32c(bytes + length % 9, length));
    }
    CHECK(host::crc32c(0, bytes + 3, 8192) == slow_crc32c(bytes + 3, 8192));
    return {};
}

}  // namespace

Result<void> check_services() {
    TRY(check_memory());
    TRY(check_locks());
    TRY(check_conditions());
    TRY(check_long_timeout());
    TRY(check_semaphore());
    TRY(check_threads());
    TRY(check_time_and_chance());
    TRY(check_crc32c());
    return {};
}

Result<void> check_hello() {
    vfs::FileSystem* hello = CHECK_OK(hello::create());
    const vfs::Attributes file = CHECK_OK(hello->lookup(vfs::kRootNode, "hello"));
    char text[16];
    const vfs::IoVector whole{text, 5};
    CHECK(CHECK_OK(hello->read(file.node, 0, 0, Span<const vfs::IoVector>(&whole, 1))) == 5);
    CHECK(__builtin_memcmp(text, "Hello", 5) == 0);
    CHECK_OK(hello->unmount());
    hello::destroy(hello);
    return {};
}

}  // namespace tiffin::vm
