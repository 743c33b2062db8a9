// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/transactions_faults.h"

#include <cstddef>
#include <cstdio>

#include "bench/links/transactions_checks.h"
#include "bench/links/transactions_trial.h"

namespace tiffin::bench {
namespace {

constexpr uint64_t kCommits = 400;

// Changes one row of the tables in remote memory.
template <typename Row, typename Change>
void change(TransactionMemory& memory, uint64_t at, Change make) {
    Row row;
    memory.read_all(at, &row, sizeof(row));
    make(row);
    memory.write_all(at, &row, sizeof(row));
}

struct Fault {
    const char* text;
    Inconsistency found_as;
    void (*plant)(TransactionMemory& memory, const CommittedOrder& order,
                  const CommittedPayment& payment);
};

// `order` and `payment` are the last ones of client 0.
constexpr Fault kFaults[] = {
    {"a fetch_add of a payment is executed twice", Inconsistency::condition_1,
     [](TransactionMemory& memory, const CommittedOrder&, const CommittedPayment& payment) {
         Batch batch;
         batch.fetch_add(district_at(payment.district) + offsetof(DistrictRow, ytd_cents),
                         payment.amount_cents);
         memory.run(batch);
     }},
    {"both of them are", Inconsistency::payment,
     [](TransactionMemory& memory, const CommittedOrder&, const CommittedPayment& payment) {
         Batch batch;
         batch.fetch_add(district_at(payment.district) + offsetof(DistrictRow, ytd_cents),
                         payment.amount_cents);
         batch.fetch_add(
             warehouse_at(warehouse_of(payment.district)) + offsetof(WarehouseRow, ytd_cents),
             payment.amount_cents);
         memory.run(batch);
     }},
    {"a customer's row is of before the payment", Inconsistency::payment,
     [](TransactionMemory& memory, const CommittedOrder&, const CommittedPayment& payment) {
         change<CustomerRow>(memory, customer_at(payment.customer_district, payment.customer),
                             [&](CustomerRow& row) { row.balance_cents += payment.amount_cents; });
     }},
    {"a row of the history is written over", Inconsistency::history,
     [](TransactionMemory& memory, const CommittedOrder&, const CommittedPayment&) {
         change<HistoryRow>(memory, history_at(0, 1), [](HistoryRow& row) { row.amount_cents++; });
     }},
    {"an id of an order is skipped", Inconsistency::condition_2,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<DistrictRow>(memory, district_at(order.district),
                             [](DistrictRow& row) { row.next_order_id++; });
     }},
    {"a new order is missing", Inconsistency::condition_3,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         // Neither the first one nor the last.
         change<NewOrderRow>(memory, new_order_at(order.district, order.id - 1),
                             [](NewOrderRow& row) { row.id = 0; });
     }},
    {"a line of an order is missing", Inconsistency::condition_4,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<OrderLineRow>(memory, order_line_at(order.district, order.id, 2),
                              [](OrderLineRow& row) { row.order_id = 0; });
     }},
    {"a line of an order has another quantity", Inconsistency::lost_order,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<OrderLineRow>(memory, order_line_at(order.district, order.id, 2),
                              [](OrderLineRow& row) { row.quantity++; });
     }},
    {"an order is there that was not committed", Inconsistency::foreign_order,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<OrderRow>(memory, order_at(order.district, kOrdersKept - 1),
                          [](OrderRow& row) { row.id = kOrdersKept - 1; });
     }},
    {"a sale is missing in the stock", Inconsistency::stock,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<StockRow>(memory, stock_at(order.lines[0].warehouse, order.lines[0].item),
                          [](StockRow& row) { row.order_count--; });
     }},
    {"a lock is left", Inconsistency::lock,
     [](TransactionMemory& memory, const CommittedOrder& order, const CommittedPayment&) {
         change<DistrictRow>(memory, district_at(order.district),
                             [](DistrictRow& row) { row.version |= kLocked; });
     }},
};

}  // namespace

bool find_planted_faults(size_t clients, uint64_t seed, const std::string& address) {
    TransactionMemory memory(address, Way::as_it_is);
    TransactionThreads threads(memory, clients, seed);
    TableImage tables;
    tables.load_into(memory);
    const TransactionClient& client = *threads.clients().front();
    do {
        threads.resume();
        threads.run_until_commits(threads.commits() + kCommits);
        threads.pause();
    } while (client.orders().empty() || client.orders().back().id <= 2 ||
             client.payments().empty());
    tables.read_from(memory);
    const Inconsistencies before = check_tables(tables, threads.clients());
    std::printf("without a fault: %s\n", before.text().c_str());
    bool is_well = before.total() == 0;
    for (const Fault& fault : kFaults) {
        fault.plant(memory, client.orders().back(), client.payments().back());
        TableImage changed;
        changed.read_from(memory);
        const Inconsistencies found = check_tables(changed, threads.clients());
        std::printf("%s: %s\n", fault.text, found.text().c_str());
        is_well = is_well && found[fault.found_as] != 0;
        tables.load_into(memory);
    }
    return is_well;
}

}  // namespace tiffin::bench
