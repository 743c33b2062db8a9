// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/transactions_client.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace tiffin::bench {
namespace {

constexpr uint64_t kOrdersOfHundred = 51;  // TPC-C's 45 new orders to 43 payments
constexpr uint64_t kRemoteLinesOfHundred = 1;
constexpr uint64_t kRemotePaymentsOfHundred = 15;

bool is_locked(uint64_t version) { return (version & kLocked) != 0; }

}  // namespace

bool TransactionClient::run(const std::atomic<bool>& gives_up) {
    const bool is_order = random(100) < kOrdersOfHundred;
    CommittedOrder order = is_order ? choose_order() : CommittedOrder();
    const CommittedPayment payment = is_order ? CommittedPayment() : choose_payment();
    uint32_t most_wait_us = 20;
    while (!(is_order ? try_order(order) : try_payment(payment))) {
        aborts_++;
        if (gives_up.load()) {
            return false;
        }
        usleep(static_cast<useconds_t>(random(most_wait_us)));
        most_wait_us = std::min(2 * most_wait_us, 2000U);
    }
    if (is_order) {
        orders_.push_back(order);
    } else {
        payments_.push_back(payment);
    }
    return true;
}

void TransactionClient::forget_commits() {
    orders_.clear();
    payments_.clear();
}

// What both transactions read first.
void TransactionClient::add_reads(uint32_t number, WarehouseRow& warehouse, DistrictRow& district) {
    batch_.clear();
    batch_.read(warehouse_at(warehouse_of(number)), &warehouse, sizeof(warehouse));
    batch_.read(district_at(number), &district, sizeof(district));
}

// ---- Locks ---------------------------------------------------------------------------------------------------

void TransactionClient::add_locks() {
    const uint64_t own = kLocked | uint64_t{number_} << kClientShift | ++attempts_;
    for (const Lock& lock : locks_) {
        batch_.compare_swap(lock.at, lock.version, own);
    }
}

// Of a batch that begins with those of add_locks(). False: those that were taken are free again.
bool TransactionClient::has_all_locks() {
    std::vector<Lock> taken;
    for (size_t index = 0; index < locks_.size(); index++) {
        if (batch_.has_swapped(index)) {
            taken.push_back(locks_[index]);
        }
    }
    if (taken.size() == locks_.size()) {
        return true;
    }
    release(taken);
    return false;
}

// Nothing was changed under them.
void TransactionClient::release(const std::vector<Lock>& locks) {
    batch_.clear();
    for (const Lock& lock : locks) {
        batch_.write_word(lock.at, lock.version);
    }
    memory_.run(batch_);
}

// After all that is in the batch.
void TransactionClient::add_unlocks() {
    for (const Lock& lock : locks_) {
        batch_.write_word(lock.at, lock.version + 1);
        batch_.order_last();
    }
}

// ---- New order -----------------------------------------------------------------------------------------------

CommittedOrder TransactionClient::choose_order() {
    CommittedOrder order;
    order.district = static_cast<uint32_t>(random(kDistricts));
    order.customer = static_cast<uint32_t>(random(kCustomersEach));
    order.line_count = kFewestLines + static_cast<uint32_t>(random(kMostLines - kFewestLines + 1));
    for (uint32_t index = 0; index < order.line_count;) {
        CommittedLine line;
        line.item = static_cast<uint32_t>(random(kItems));
        line.quantity = 1 + static_cast<uint32_t>(random(10));
        line.warehouse = warehouse_of(order.district);
        if (random(100) < kRemoteLinesOfHundred) {
            line.warehouse = (line.warehouse + 1) % kWarehouses;
        }
        const auto end = order.lines.begin() + index;
        if (std::none_of(order.lines.begin(), end,
                         [&](const CommittedLine& one) { return one.item == line.item; })) {
            order.lines[index++] = line;
        }
    }
    return order;
}

bool TransactionClient::try_order(CommittedOrder& order) {
    WarehouseRow warehouse;
    DistrictRow district;
    CustomerRow customer;
    const uint64_t customer_place = customer_at(order.district, order.customer);
    add_reads(order.district, warehouse, district);
    batch_.read(customer_place, &customer, sizeof(customer));
    for (uint32_t index = 0; index < order.line_count; index++) {
        const CommittedLine& line = order.lines[index];
        batch_.read(stock_at(line.warehouse, line.item), &stock_[index], sizeof(StockRow));
    }
    memory_.run(batch_);

    locks_ = {{district_at(order.district), district.version}};
    for (uint32_t index = 0; index < order.line_count; index++) {
        const CommittedLine& line = order.lines[index];
        locks_.push_back({stock_at(line.warehouse, line.item), stock_[index].version});
    }
    if (is_locked(customer.version) ||
        std::any_of(locks_.begin(), locks_.end(),
                    [](const Lock& lock) { return is_locked(lock.version); })) {
        return false;
    }
    batch_.clear();
    add_locks();
    // What was read and is not locked must be the same once everything else is locked.
    uint64_t customer_version = 0;
    batch_.read(customer_place, &customer_version, sizeof(customer_version));
    batch_.order_last();
    memory_.run(batch_);
    if (!has_all_locks()) {
        return false;
    }
    if (customer_version != customer.version) {
        release(locks_);
        return false;
    }

    order.id = district.next_order_id;
    uint64_t total_cents = 0;
    for (uint32_t index = 0; index < order.line_count; index++) {
        total_cents += order.lines[index].amount_cents();
    }
    total_cents =
        total_cents * (10'000 + warehouse.tax_basis_points + district.tax_basis_points) / 10'000;
    order.total_cents = total_cents * (10'000 - customer.discount_basis_points) / 10'000;
    commit_order(order, district);
    return true;
}

// Everything is locked, and nothing that was read has changed.
void TransactionClient::commit_order(const CommittedOrder& order, const DistrictRow& district) {
    order_row_ = OrderRow();
    order_row_.id = order.id;
    order_row_.district = order.district;
    order_row_.customer = order.customer;
    order_row_.line_count = order.line_count;
    order_row_.client = number_;
    order_row_.total_cents = order.total_cents;
    new_order_row_ = NewOrderRow();
    new_order_row_.id = order.id;
    new_order_row_.district = order.district;
    batch_.clear();
    batch_.write_word(district_at(order.district) + offsetof(DistrictRow, next_order_id),
                      district.next_order_id + 1);
    batch_.write(order_at(order.district, order.id), &order_row_, sizeof(order_row_));
    batch_.write(new_order_at(order.district, order.id), &new_order_row_, sizeof(new_order_row_));
    for (uint32_t index = 0; index < order.line_count; index++) {
        const CommittedLine& line = order.lines[index];
        StockRow& stock = stock_[index];
        stock.quantity = stock_after(stock.quantity, line.quantity);
        stock.sold += line.quantity;
        stock.order_count++;
        constexpr uint64_t kChanged = offsetof(StockRow, quantity);
        batch_.write(stock_at(line.warehouse, line.item) + kChanged, &stock.quantity,
                     offsetof(StockRow, rest) - kChanged);
        OrderLineRow& row = lines_[index];
        row = OrderLineRow();
        row.order_id = order.id;
        row.number = index;
        row.item = line.item;
        row.warehouse = line.warehouse;
        row.quantity = line.quantity;
        row.amount_cents = line.amount_cents();
    }
    batch_.write(order_line_at(order.district, order.id, 0), lines_.data(),
                 order.line_count * sizeof(OrderLineRow));
    add_unlocks();
    memory_.run(batch_);
}

// ---- Payment -------------------------------------------------------------------------------------------------

CommittedPayment TransactionClient::choose_payment() {
    CommittedPayment payment;
    payment.district = static_cast<uint32_t>(random(kDistricts));
    payment.customer_district = random(100) < kRemotePaymentsOfHundred
                                    ? static_cast<uint32_t>(random(kDistricts))
                                    : payment.district;
    payment.customer = static_cast<uint32_t>(random(kCustomersEach));
    payment.amount_cents = 100 + static_cast<uint32_t>(random(499'901));
    return payment;
}

bool TransactionClient::try_payment(const CommittedPayment& payment) {
    WarehouseRow warehouse;
    DistrictRow district;
    CustomerRow customer;
    const uint64_t place = customer_at(payment.customer_district, payment.customer);
    add_reads(payment.district, warehouse, district);
    batch_.read(place, &customer, sizeof(customer));
    memory_.run(batch_);
    if (is_locked(customer.version)) {
        return false;
    }
    locks_ = {{place, customer.version}};
    batch_.clear();
    add_locks();
    memory_.run(batch_);
    if (!has_all_locks()) {
        return false;
    }
    customer.balance_cents -= payment.amount_cents;
    customer.paid_cents += payment.amount_cents;
    customer.payment_count++;
    HistoryRow history;
    history.serial = payments_.size() + 1;
    history.district = payment.district;
    history.customer_district = payment.customer_district;
    history.customer = payment.customer;
    history.amount_cents = payment.amount_cents;
    constexpr uint64_t kChanged = offsetof(CustomerRow, balance_cents);
    batch_.clear();
    batch_.write(place + kChanged, &customer.balance_cents,
                 offsetof(CustomerRow, discount_basis_points) - kChanged);
    batch_.write(history_at(number_, history.serial), &history, sizeof(history));
    batch_.fetch_add(
        warehouse_at(warehouse_of(payment.district)) + offsetof(WarehouseRow, ytd_cents),
        payment.amount_cents);
    batch_.fetch_add(district_at(payment.district) + offsetof(DistrictRow, ytd_cents),
                     payment.amount_cents);
    add_unlocks();
    memory_.run(batch_);
    return true;
}

}  // namespace tiffin::bench
