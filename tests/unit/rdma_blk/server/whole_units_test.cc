// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A server that is killed in the middle of a request that nobody repeats leaves every aligned 64 bytes old or new.
#include "rdma_blk/server/whole_units.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "rdma_blk/transport/shm/unit_copy.h"
#include "tests/unit/rdma_blk/server/volume_fixture.h"

namespace tiffin::rdma_blk {
namespace {

constexpr size_t kUnitBytes = 64;

using Write = void (*)(wire::UnitMark& mark, AddressSpace space, uint64_t offset_bytes,
                       unsigned char* place, ByteSpan payload);

void expect_as_memcpy(Write write) {
    wire::UnitMark mark{};
    for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200},
                              kStreamedBytes, kStreamedBytes + 77}) {
        std::vector<unsigned char> source(size + 1);
        for (size_t i = 0; i < source.size(); i++) {
            source[i] = static_cast<unsigned char>(i * 11 + 5);
        }
        for (size_t offset = 0; offset < 2 * kUnitBytes; offset++) {
            std::vector<unsigned char> memory(4 * kUnitBytes + size, 0xee);
            std::vector<unsigned char> expected = memory;
            if (size != 0) {
                std::memcpy(&expected[offset], source.data(), size);
            }
            write(mark, AddressSpace::data, offset, &memory[offset], ByteSpan(source.data(), size));
            ASSERT_EQ(memory, expected) << "at " << offset << ", " << size << " bytes";
            ASSERT_EQ(mark.state, 0U);
        }
    }
}

TEST(WholeUnits, AreThoseOfMemcpyWithinTheirEnds) {
    expect_as_memcpy(write_whole_units);
    expect_as_memcpy(write_marked_units);
}

// Rounds in which the writer was killed while it wrote a unit with a mark.
size_t kill_in_writes(Write write, size_t write_bytes, bool uses_mark) {
    constexpr size_t kBytes = 2048 * kUnitBytes;
    constexpr size_t kMarkBytes = 4096;
    void* mapped = mmap(nullptr, kBytes + kMarkBytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    auto* memory = static_cast<unsigned char*>(mapped);
    auto& mark = *reinterpret_cast<wire::UnitMark*>(memory + kBytes);
    const auto torn_units = [&] {
        size_t torn = 0;
        for (size_t at = 0; at < kBytes; at += kUnitBytes) {
            torn += std::memcmp(memory + at, memory + at + 1, kUnitBytes - 1) == 0 ? 0 : 1;
        }
        return torn;
    };
    size_t met = 0;
    // Longer when no kill has met a unit yet.
    for (int round = 0; round < 60 || (met == 0 && uses_mark && round < 2000); round++) {
        std::memset(memory, 0, kBytes + kMarkBytes);
        const pid_t writer = fork();
        if (writer == 0) {
            static unsigned char source[kBytes];
            for (unsigned value = 1;; value++) {
                std::memset(source, static_cast<int>(value % 251 + 1), sizeof source);
                for (size_t at = 0; at < kBytes; at += write_bytes) {
                    write(mark, AddressSpace::data, at, memory + at,
                          ByteSpan(source + at, write_bytes));
                }
            }
        }
        while (std::atomic_ref<unsigned char>(memory[kBytes - 1]).load() == 0) {
        }
        usleep(static_cast<useconds_t>(round * 7 % 400));
        kill(writer, SIGKILL);
        EXPECT_EQ(waitpid(writer, nullptr, 0), writer);
        met += mark.state != 0 ? 1 : 0;
        finish_unit(mark, MutableByteSpan(memory, kBytes), MutableByteSpan());
        EXPECT_EQ(torn_units(), 0U) << "round " << round;
        EXPECT_EQ(mark.state, 0U);
    }
    munmap(mapped, kBytes + kMarkBytes);
    return met;
}

TEST(WholeUnits, AreWholeAfterKills) {
    for (const size_t write_bytes : {size_t{4096}, 2 * kStreamedBytes}) {
        (void)kill_in_writes(write_whole_units, write_bytes, false);
        EXPECT_GT(kill_in_writes(write_marked_units, write_bytes, true), 0U)
            << "no kill met a unit, so that nothing was shown";
    }
}

TEST(WholeUnits, AMarkThatMakesNoSenseIsDropped) {
    std::vector<unsigned char> memory(128);
    wire::UnitMark mark{};
    std::memset(mark.bytes, 7, sizeof(mark.bytes));
    const MutableByteSpan span(memory.data(), memory.size());
    for (const uint64_t offset : {uint64_t{65}, ~uint64_t{0}}) {
        mark.offset_bytes = offset;
        mark.state = 1;
        finish_unit(mark, span, span);
        EXPECT_EQ(mark.state, 0U);
    }
    mark.offset_bytes = 64;
    mark.state = 9;
    finish_unit(mark, span, span);
    EXPECT_EQ(memory, std::vector<unsigned char>(128));
    mark.state = 1;
    finish_unit(mark, span, MutableByteSpan());
    EXPECT_EQ(memory[64], 7);
    EXPECT_EQ(memory[127], 7);
}

class WholeUnitsOfVolumes : public VolumeFixture {};

TEST_F(WholeUnitsOfVolumes, AServerThatStartsAgainFinishesTheUnitThatItWasKilledIn) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, wire::SessionMode::write).kind, Volume::OpenAnswer::Kind::opened);
    ASSERT_EQ(write(writer, 0, std::string(4096, 'a')).outcome,
              static_cast<uint8_t>(Outcome::executed));
    wire::UnitMark& mark = writer.session->place().record->unit;
    EXPECT_EQ(mark.state, 0U);
    std::memset(mark.bytes, 'b', sizeof(mark.bytes));
    mark.offset_bytes = 128;
    mark.state = 1;
    std::memset(volume_->memory().data + 128, 'b', 16);
    writer.session.reset();
    restart(true);
    EXPECT_EQ(content(64, 192), std::string(64, 'a') + std::string(64, 'b') + std::string(64, 'a'));
    ASSERT_EQ(resume(writer, {}).kind, Volume::OpenAnswer::Kind::opened);
    EXPECT_EQ(writer.session->place().record->unit.state, 0U);
}

// Another version served in between, and left the mark as it was.
TEST_F(WholeUnitsOfVolumes, AMarkOfAnEarlierProcessIsNotBelieved) {
    start(true);
    Client writer = client(1);
    ASSERT_EQ(open(writer, wire::SessionMode::write).kind, Volume::OpenAnswer::Kind::opened);
    wire::UnitMark& mark = writer.session->place().record->unit;
    std::memset(mark.bytes, 'b', sizeof(mark.bytes));
    mark.state = 1;
    mark.server_start_count--;
    writer.session.reset();
    restart(true);
    EXPECT_EQ(content(0, 64), std::string(64, '\0'));
}

}  // namespace
}  // namespace tiffin::rdma_blk
