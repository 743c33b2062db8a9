// SPDX-License-Identifier: MIT OR GPL-2.0-only
// CRC32C by the processor's instruction, which works on general registers, so nothing of the vector unit has to be saved.
//
// The instruction takes three cycles, and one can begin in each cycle. So three streams are computed side by side, and joined:
// the remainder of a stream is moved over the bytes of the next one, which is linear, by tables of 512 bytes (V. Gopal et al.,
// "Fast CRC Computation for iSCSI Polynomial Using CRC32 Instruction", Intel 2011). Without the instruction the kernel's
// function is called, which has tables in some kernels.
#include "fs/vfs/host.h"
#include "kmod/host/kernel_services.h"

namespace tiffin::host {
namespace {

// Between two pieces a kernel that is not preemptible is asked for the processor: long loops over data come through here.
constexpr size_t kPieceBytes = 65536;

#if defined(__x86_64__)

constexpr size_t kWordBytes = 8;
// Three of them and two words are a block of 4096 bytes.
constexpr size_t kStreamBytes = 1360;

// What a remainder becomes behind kStreamBytes zeros, by its eight digits of four bits.
struct MovedDigits {
    uint32_t table[8][16] = {};

    constexpr MovedDigits() {
        constexpr uint32_t kPolynomial = 0x82f63b78;
        uint32_t moved_bit[32] = {};
        for (int bit = 0; bit < 32; ++bit) {
            uint32_t remainder = uint32_t{1} << bit;
            for (size_t i = 0; i < kStreamBytes * 8; ++i) {
                remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? kPolynomial : 0);
            }
            moved_bit[bit] = remainder;
        }
        for (int digit = 0; digit < 8; ++digit) {
            for (int value = 0; value < 16; ++value) {
                for (int bit = 0; bit < 4; ++bit) {
                    if ((value >> bit & 1) != 0) {
                        table[digit][value] ^= moved_bit[digit * 4 + bit];
                    }
                }
            }
        }
    }

    uint32_t moved(uint32_t remainder) const {
        uint32_t result = 0;
        for (int digit = 0; digit < 8; ++digit) {
            result ^= table[digit][remainder >> (4 * digit) & 15];
        }
        return result;
    }
};
constexpr MovedDigits kMovedDigits;

// The processor's CPUID, leaf 1, register ECX. User-mode Linux does not ask for it itself.
bool ask_for_instruction() {
    constexpr uint32_t kSse42 = 1U << 20;
    uint32_t a = 1;
    uint32_t b = 0;
    uint32_t c = 0;
    uint32_t d = 0;
    asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (c & kSse42) != 0;
}

// Asking takes microseconds in a virtual machine. Whoever comes first asks; the answer is always the same.
bool has_instruction() {
    enum : int { unknown, no, yes };
    static int answer = unknown;
    int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
    if (known == unknown) {
        known = ask_for_instruction() ? yes : no;
        __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
    }
    return known == yes;
}

uint64_t word_at(const unsigned char* bytes) {
    uint64_t word = 0;
    __builtin_memcpy(&word, bytes, sizeof(word));
    return word;
}
uint64_t add_word(uint64_t remainder, const unsigned char* bytes) {
    asm("crc32q %1, %0" : "+r"(remainder) : "rm"(word_at(bytes)));
    return remainder;
}
uint32_t add_byte(uint32_t remainder, unsigned char byte) {
    asm("crc32b %1, %0" : "+r"(remainder) : "rm"(byte));
    return remainder;
}

uint32_t by_instruction(uint32_t remainder, const unsigned char* bytes, size_t size_bytes) {
    for (; size_bytes >= 3 * kStreamBytes; size_bytes -= 3 * kStreamBytes) {
        uint64_t first = remainder;
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t i = 0; i < kStreamBytes; i += kWordBytes) {
            first = add_word(first, bytes + i);
            second = add_word(second, bytes + kStreamBytes + i);
            third = add_word(third, bytes + 2 * kStreamBytes + i);
        }
        const uint32_t both =
            kMovedDigits.moved(static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
        remainder = kMovedDigits.moved(both) ^ static_cast<uint32_t>(third);
        bytes += 3 * kStreamBytes;
    }
    uint64_t wide = remainder;
    for (; size_bytes >= kWordBytes; size_bytes -= kWordBytes) {
        wide = add_word(wide, bytes);
        bytes += kWordBytes;
    }
    remainder = static_cast<uint32_t>(wide);
    for (; size_bytes > 0; --size_bytes) {
        remainder = add_byte(remainder, *bytes++);
    }
    return remainder;
}

uint32_t add_piece(uint32_t remainder, const unsigned char* bytes, size_t size_bytes) {
    return has_instruction() ? by_instruction(remainder, bytes, size_bytes)
                             : tiffin_crc32c(remainder, bytes, size_bytes);
}

#else

uint32_t add_piece(uint32_t remainder, const unsigned char* bytes, size_t size_bytes) {
    return tiffin_crc32c(remainder, bytes, size_bytes);
}

#endif

}  // namespace

uint32_t crc32c(uint32_t seed, const void* data, size_t size_bytes) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    uint32_t remainder = ~seed;
    for (; size_bytes > kPieceBytes; size_bytes -= kPieceBytes) {
        remainder = add_piece(remainder, bytes, kPieceBytes);
        bytes += kPieceBytes;
        tiffin_offer_processor();
    }
    return ~add_piece(remainder, bytes, size_bytes);
}

}  // namespace tiffin::host
