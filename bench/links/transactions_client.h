// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client of the tables: one transaction after another, without a pause, and a list of those that it has committed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "bench/links/transactions_memory.h"
#include "bench/links/transactions_tables.h"

namespace tiffin::bench {

struct CommittedLine {
    uint32_t item = 0;
    uint32_t warehouse = 0;
    uint32_t quantity = 0;

    uint64_t amount_cents() const { return quantity * price_cents(item); }
};
struct CommittedOrder {
    uint32_t district = 0;
    uint32_t customer = 0;
    uint64_t id = 0;
    uint64_t total_cents = 0;
    uint32_t line_count = 0;
    std::array<CommittedLine, kMostLines> lines;
};
struct CommittedPayment {
    uint32_t district = 0;  // where it was paid
    uint32_t customer_district = 0;
    uint32_t customer = 0;
    uint32_t amount_cents = 0;
};

class TransactionClient {
  public:
    // `number` is less than kMostClients.
    TransactionClient(TransactionMemory& memory, uint32_t number, uint64_t seed)
        : memory_(memory), number_(number), random_(seed * kMostClients + number) {}

    // One transaction, which is tried until it commits. False: `gives_up` became true before.
    bool run(const std::atomic<bool>& gives_up);

    // Not while run() is running. The serial of a payment is its place in the list plus 1.
    uint32_t number() const { return number_; }
    const std::vector<CommittedOrder>& orders() const { return orders_; }
    const std::vector<CommittedPayment>& payments() const { return payments_; }
    uint64_t aborts() const { return aborts_; }
    // The tables were loaded again.
    void forget_commits();

  private:
    CommittedOrder choose_order();
    CommittedPayment choose_payment();
    bool try_order(CommittedOrder& order);
    void commit_order(const CommittedOrder& order, const DistrictRow& district);
    bool try_payment(const CommittedPayment& payment);

    // The places of the versions that a transaction locks, and what they were.
    struct Lock {
        uint64_t at = 0;
        uint64_t version = 0;
    };
    void add_reads(uint32_t number, WarehouseRow& warehouse, DistrictRow& district);
    void add_locks();
    bool has_all_locks();
    void release(const std::vector<Lock>& locks);
    void add_unlocks();

    uint64_t random(uint64_t limit) { return random_() % limit; }

    TransactionMemory& memory_;
    uint32_t number_;
    std::mt19937_64 random_;
    uint64_t attempts_ = 0;
    uint64_t aborts_ = 0;
    std::vector<CommittedOrder> orders_;
    std::vector<CommittedPayment> payments_;

    Batch batch_;
    std::vector<Lock> locks_;
    std::array<StockRow, kMostLines> stock_;
    std::array<OrderLineRow, kMostLines> lines_;
    OrderRow order_row_;
    NewOrderRow new_order_row_;
};

}  // namespace tiffin::bench
