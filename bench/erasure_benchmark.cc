// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Encoding and decoding speed of one core: chunks of 64 KiB in groups of 32 + 8, over 128 MiB as in figure 11 of the
// SDR paper (arXiv:2505.05366), or over one group that stays in the cache.
//
// Isal* are loops over the library alone, as in ISA-L's own erasure_code_perf: tables made once, nothing else around.
// Sdr* are what a connection calls for each group. Bytes are those of the data, not of parity, so that the figure is
// the rate of messages that one core keeps up with; cores_at_400Gbit is how many it takes to hide the work at the paper's
// line rate. Times are the processor's.
#include <benchmark/benchmark.h>
#include <isa-l.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "rdma_blk/sdr/reliability/erasure_code.h"

namespace {

constexpr int kData = 32;
constexpr int kParity = 8;
constexpr size_t kChunkBytes = 65536;
constexpr size_t kAlignment = 64;

struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, Free>;

Memory allocate(size_t size_bytes) {
    Memory memory(static_cast<unsigned char*>(std::aligned_alloc(kAlignment, size_bytes)));
    if (memory == nullptr) {
        std::abort();
    }
    uint32_t value = 1;
    for (size_t i = 0; i < size_bytes; ++i) {
        value = value * 1664525 + 1013904223;
        memory.get()[i] = static_cast<unsigned char>(value >> 24);
    }
    return memory;
}

// A message, and the parity of all its groups.
class Message {
  public:
    explicit Message(size_t groups)
        : groups_(groups),
          data_(allocate(groups * kData * kChunkBytes)),
          parity_(allocate(groups * kParity * kChunkBytes)) {}

    size_t groups() const { return groups_; }
    size_t data_bytes() const { return groups_ * kData * kChunkBytes; }
    unsigned char* data(size_t group, int chunk) {
        return data_.get() + (group * kData + static_cast<size_t>(chunk)) * kChunkBytes;
    }
    unsigned char* parity(size_t group, int chunk) {
        return parity_.get() + (group * kParity + static_cast<size_t>(chunk)) * kChunkBytes;
    }

  private:
    size_t groups_;
    Memory data_;
    Memory parity_;
};

void set_bytes(benchmark::State& state, const Message& message) {
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) *
                            static_cast<int64_t>(message.data_bytes()));
    constexpr double kLineBytesPerS = 400e9 / 8;
    state.counters["cores_at_400Gbit"] = benchmark::Counter(
        static_cast<double>(message.data_bytes()) / kLineBytesPerS,
        benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void IsalEncodeMds(benchmark::State& state) {
    Message message(static_cast<size_t>(state.range(0)));
    std::vector<unsigned char> matrix(size_t{kData} * (kData + kParity));
    std::vector<unsigned char> tables(size_t{32} * kData * kParity);
    gf_gen_cauchy1_matrix(matrix.data(), kData + kParity, kData);
    ec_init_tables(kData, kParity, &matrix[size_t{kData} * kData], tables.data());
    unsigned char* data[kData];
    unsigned char* parity[kParity];
    for (auto _ : state) {
        for (size_t group = 0; group < message.groups(); ++group) {
            for (int i = 0; i < kData; ++i) {
                data[i] = message.data(group, i);
            }
            for (int i = 0; i < kParity; ++i) {
                parity[i] = message.parity(group, i);
            }
            ec_encode_data(kChunkBytes, kData, kParity, tables.data(), data, parity);
        }
        benchmark::ClobberMemory();
    }
    set_bytes(state, message);
}

// All eight losses that a group survives are of data: the most that there is to compute.
void IsalDecodeMds(benchmark::State& state) {
    Message message(static_cast<size_t>(state.range(0)));
    const int lost = static_cast<int>(state.range(1));
    std::vector<unsigned char> matrix(size_t{kData} * (kData + kParity));
    std::vector<unsigned char> left(size_t{kData} * kData);
    std::vector<unsigned char> inverse(size_t{kData} * kData);
    std::vector<unsigned char> tables(size_t{32} * kData * kParity);
    gf_gen_cauchy1_matrix(matrix.data(), kData + kParity, kData);
    // The first `lost` data chunks are missing, as many parity chunks stand in.
    for (int i = 0; i < kData; ++i) {
        std::memcpy(&left[size_t{kData} * static_cast<size_t>(i)],
                    &matrix[size_t{kData} * static_cast<size_t>(lost + i)], kData);
    }
    if (gf_invert_matrix(left.data(), inverse.data(), kData) != 0) {
        state.SkipWithError("not invertible");
        return;
    }
    ec_init_tables(kData, lost, inverse.data(), tables.data());
    unsigned char* sources[kData];
    unsigned char* restored[kParity];
    for (auto _ : state) {
        for (size_t group = 0; group < message.groups(); ++group) {
            for (int i = 0; i < kData; ++i) {
                sources[i] = lost + i < kData ? message.data(group, lost + i)
                                              : message.parity(group, lost + i - kData);
            }
            for (int i = 0; i < lost; ++i) {
                restored[i] = message.data(group, i);
            }
            ec_encode_data(kChunkBytes, kData, lost, tables.data(), sources, restored);
        }
        benchmark::ClobberMemory();
    }
    set_bytes(state, message);
}

void IsalEncodeXor(benchmark::State& state) {
    Message message(static_cast<size_t>(state.range(0)));
    void* chunks[kData / kParity + 1];
    for (auto _ : state) {
        for (size_t group = 0; group < message.groups(); ++group) {
            for (int parity = 0; parity < kParity; ++parity) {
                int count = 0;
                for (int i = parity; i < kData; i += kParity) {
                    chunks[count++] = message.data(group, i);
                }
                chunks[count++] = message.parity(group, parity);
                if (xor_gen(count, kChunkBytes, chunks) != 0) {
                    state.SkipWithError("xor_gen");
                    return;
                }
            }
        }
        benchmark::ClobberMemory();
    }
    set_bytes(state, message);
}

// ---- What a connection does --------------------------------------------------------------------------

namespace sdr = tiffin::rdma_blk::sdr;

constexpr sdr::GroupShape kShape{0, kData, kParity};

void SdrEncode(benchmark::State& state, sdr::SchemeKind kind) {
    Message message(static_cast<size_t>(state.range(0)));
    sdr::ErasureCode code;
    if (!code.allocate().ok()) {
        state.SkipWithError("no memory");
        return;
    }
    const unsigned char* data[kData];
    unsigned char* parity[kParity];
    for (auto _ : state) {
        for (size_t group = 0; group < message.groups(); ++group) {
            for (int i = 0; i < kData; ++i) {
                data[i] = message.data(group, i);
            }
            for (int i = 0; i < kParity; ++i) {
                parity[i] = message.parity(group, i);
            }
            code.encode(kind, kShape, kChunkBytes, data, parity);
        }
        benchmark::ClobberMemory();
    }
    set_bytes(state, message);
}
void SdrEncodeMds(benchmark::State& state) { SdrEncode(state, sdr::SchemeKind::erasure_mds); }
void SdrEncodeXor(benchmark::State& state) { SdrEncode(state, sdr::SchemeKind::erasure_xor); }

// Of each group the first `lost` data chunks are missing, and all parity is there.
void SdrDecode(benchmark::State& state, sdr::SchemeKind kind) {
    Message message(static_cast<size_t>(state.range(0)));
    const int lost = static_cast<int>(state.range(1));
    sdr::ErasureCode code;
    if (!code.allocate().ok()) {
        state.SkipWithError("no memory");
        return;
    }
    sdr::GroupState there;
    there.data = ((uint64_t{1} << kData) - 1) & ~((uint64_t{1} << lost) - 1);
    there.parity = (1U << kParity) - 1;
    const uint64_t wanted = sdr::restorable_chunks(kind, kShape, there);
    unsigned char* data[kData];
    const unsigned char* parity[kParity];
    for (auto _ : state) {
        for (size_t group = 0; group < message.groups(); ++group) {
            for (int i = 0; i < kData; ++i) {
                data[i] = message.data(group, i);
            }
            for (int i = 0; i < kParity; ++i) {
                parity[i] = message.parity(group, i);
            }
            code.decode(kind, kShape, kChunkBytes, there, wanted, data, parity);
        }
        benchmark::ClobberMemory();
    }
    set_bytes(state, message);
}
void SdrDecodeMds(benchmark::State& state) { SdrDecode(state, sdr::SchemeKind::erasure_mds); }
void SdrDecodeXor(benchmark::State& state) { SdrDecode(state, sdr::SchemeKind::erasure_xor); }

constexpr int kGroupsOf128Mib = 64;
constexpr int kGroupsInCache = 1;

BENCHMARK(IsalEncodeMds)->Arg(kGroupsOf128Mib)->Arg(kGroupsInCache)->Unit(benchmark::kMillisecond);
BENCHMARK(IsalDecodeMds)
    ->Args({kGroupsOf128Mib, 1})
    ->Args({kGroupsOf128Mib, kParity})
    ->Args({kGroupsInCache, kParity})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(IsalEncodeXor)->Arg(kGroupsOf128Mib)->Arg(kGroupsInCache)->Unit(benchmark::kMillisecond);
BENCHMARK(SdrEncodeMds)->Arg(kGroupsOf128Mib)->Arg(kGroupsInCache)->Unit(benchmark::kMillisecond);
BENCHMARK(SdrDecodeMds)
    ->Args({kGroupsOf128Mib, 1})
    ->Args({kGroupsOf128Mib, kParity})
    ->Args({kGroupsInCache, kParity})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(SdrEncodeXor)->Arg(kGroupsOf128Mib)->Arg(kGroupsInCache)->Unit(benchmark::kMillisecond);
BENCHMARK(SdrDecodeXor)->Args({kGroupsOf128Mib, kParity})->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
