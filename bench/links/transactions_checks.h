// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the tables must be while no transaction is running: TPC-C's consistency conditions 1 to 4 (its clause 3.3.2), for
// orders that are still in the rings; and exactly what the clients have committed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "bench/links/transactions_client.h"
#include "bench/links/transactions_memory.h"
#include "bench/links/transactions_tables.h"

namespace tiffin::bench {

enum class Inconsistency : uint8_t {
    condition_1,    // warehouses: W_YTD is the sum of their D_YTD
    condition_2,    // districts: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)
    condition_3,    // districts: max(NO_O_ID) - min(NO_O_ID) + 1 = the number of new orders
    condition_4,    // districts: the sum of O_OL_CNT = the number of order lines
    lost_order,     // committed, and not there as it was committed
    foreign_order,  // there, and not committed
    payment,        // warehouses, districts and customers: not the sum of their committed payments
    history,        // rows of it: not those of the committed payments
    stock,          // rows: not what the committed orders have left
    lock,           // rows that are locked
    count
};
inline constexpr size_t kInconsistencies = static_cast<size_t>(Inconsistency::count);
inline constexpr const char* kInconsistencyNames[] = {
    "condition 1",          "condition 2",  "condition 3", "condition 4", "orders lost or changed",
    "orders not committed", "payment sums", "history",     "stock",       "locks left",
};
static_assert(std::size(kInconsistencyNames) == kInconsistencies);

struct Inconsistencies {
    std::array<uint64_t, kInconsistencies> counts{};

    uint64_t& operator[](Inconsistency kind) { return counts[static_cast<size_t>(kind)]; }
    uint64_t operator[](Inconsistency kind) const { return counts[static_cast<size_t>(kind)]; }
    uint64_t total() const;
    std::string text() const;
};

// All tables, in local memory.
class TableImage {
  public:
    // As before the first transaction.
    TableImage();

    void load_into(TransactionMemory& memory) const {
        memory.write_all(0, bytes_.data(), bytes_.size());
    }
    void read_from(TransactionMemory& memory) { memory.read_all(0, bytes_.data(), bytes_.size()); }

    template <typename Row>
    Row row(uint64_t at) const {
        Row row;
        std::memcpy(&row, &bytes_[at], sizeof(row));
        return row;
    }
    template <typename Row>
    void put(uint64_t at, const Row& row) {
        std::memcpy(&bytes_[at], &row, sizeof(row));
    }

  private:
    std::vector<unsigned char> bytes_;
};

using TransactionClients = std::vector<std::unique_ptr<TransactionClient>>;

// Of the commits since the check before this one, how many are not in the rings any more: they were never checked in full.
// `checked` has the number of commits of each client at that check, and is brought up to date.
struct CheckedCommits {
    std::vector<size_t> orders = std::vector<size_t>(kMostClients);
    std::vector<size_t> payments = std::vector<size_t>(kMostClients);
};
uint64_t count_missed(const TableImage& tables, const TransactionClients& clients,
                      CheckedCommits& checked);

Inconsistencies check_tables(const TableImage& tables, const TransactionClients& clients);

}  // namespace tiffin::bench
