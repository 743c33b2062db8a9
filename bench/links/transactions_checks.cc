// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/links/transactions_checks.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <utility>

namespace tiffin::bench {
namespace {

// What the clients have committed adds up to.
struct Expected {
    std::vector<uint64_t> warehouse_paid = std::vector<uint64_t>(kWarehouses);
    std::vector<uint64_t> district_paid = std::vector<uint64_t>(kDistricts);
    struct Customer {
        uint64_t paid_cents = 0;
        uint64_t payment_count = 0;
    };
    std::vector<Customer> customers = std::vector<Customer>(kDistricts * kCustomersEach);
    struct Stock {
        uint64_t sold = 0;
        uint64_t order_count = 0;
    };
    std::vector<Stock> stock = std::vector<Stock>(kWarehouses * kItems);

    explicit Expected(const TransactionClients& clients) {
        for (const auto& client : clients) {
            for (const CommittedPayment& payment : client->payments()) {
                warehouse_paid[warehouse_of(payment.district)] += payment.amount_cents;
                district_paid[payment.district] += payment.amount_cents;
                Customer& customer =
                    customers[payment.customer_district * kCustomersEach + payment.customer];
                customer.paid_cents += payment.amount_cents;
                customer.payment_count++;
            }
            for (const CommittedOrder& order : client->orders()) {
                for (uint32_t index = 0; index < order.line_count; index++) {
                    const CommittedLine& line = order.lines[index];
                    Stock& row = stock[line.warehouse * kItems + line.item];
                    row.sold += line.quantity;
                    row.order_count++;
                }
            }
        }
    }
};

// Smaller ids have left the ring.
uint64_t oldest_kept(const TableImage& tables, uint32_t district) {
    const uint64_t next = tables.row<DistrictRow>(district_at(district)).next_order_id;
    return next > kOrdersKept ? next - kOrdersKept : 1;
}

class Checker {
  public:
    Checker(const TableImage& tables, const TransactionClients& clients)
        : tables_(tables), clients_(clients), expected_(clients) {}

    Inconsistencies check() {
        for (uint32_t warehouse = 0; warehouse < kWarehouses; warehouse++) {
            check_warehouse(warehouse);
        }
        std::vector<std::set<uint64_t>> committed(kDistricts);
        for (const auto& client : clients_) {
            for (const CommittedOrder& order : client->orders()) {
                // Two of the same id cannot both be there.
                count(Inconsistency::lost_order,
                      !committed[order.district].insert(order.id).second || !is_there(order));
            }
            check_history(*client);
        }
        for (uint32_t district = 0; district < kDistricts; district++) {
            check_district(district, committed[district]);
            for (uint32_t customer = 0; customer < kCustomersEach; customer++) {
                check_customer(district, customer);
            }
        }
        for (uint32_t warehouse = 0; warehouse < kWarehouses; warehouse++) {
            for (uint32_t item = 0; item < kItems; item++) {
                check_stock(warehouse, item);
            }
        }
        return found_;
    }

  private:
    void count(Inconsistency kind, bool is_wrong) { found_[kind] += is_wrong ? 1 : 0; }
    void check_lock(uint64_t version) { count(Inconsistency::lock, (version & kLocked) != 0); }
    DistrictRow district_row(uint32_t district) const {
        return tables_.row<DistrictRow>(district_at(district));
    }

    void check_warehouse(uint32_t warehouse) {
        const uint64_t ytd = tables_.row<WarehouseRow>(warehouse_at(warehouse)).ytd_cents;
        uint64_t sum = 0;
        for (uint32_t index = 0; index < kDistrictsEach; index++) {
            sum += district_row(warehouse * kDistrictsEach + index).ytd_cents;
        }
        count(Inconsistency::condition_1, ytd != sum);
        count(Inconsistency::payment,
              ytd != kDistrictsEach * kFirstYtdCents + expected_.warehouse_paid[warehouse]);
    }

    void check_district(uint32_t district, const std::set<uint64_t>& committed) {
        const DistrictRow row = district_row(district);
        check_lock(row.version);
        count(Inconsistency::payment,
              row.ytd_cents != kFirstYtdCents + expected_.district_paid[district]);
        uint64_t most_order = 0;
        uint64_t most_new_order = 0;
        uint64_t least_new_order = 0;
        uint64_t new_orders = 0;
        uint64_t promised_lines = 0;
        uint64_t lines = 0;
        const uint64_t oldest = oldest_kept(tables_, district);
        for (uint64_t place = 0; place < kOrdersKept; place++) {
            const auto order = tables_.row<OrderRow>(order_at(district, place));
            const auto new_order = tables_.row<NewOrderRow>(new_order_at(district, place));
            most_order = std::max(most_order, order.id);
            promised_lines += order.id != 0 ? order.line_count : 0;
            count(Inconsistency::foreign_order, order.id != 0 && !committed.contains(order.id));
            most_new_order = std::max(most_new_order, new_order.id);
            if (new_order.id != 0) {
                least_new_order =
                    new_orders == 0 ? new_order.id : std::min(least_new_order, new_order.id);
                new_orders++;
            }
            for (uint32_t line = 0; line < kMostLines; line++) {
                // Those of an order that had more lines and has left the ring are still there.
                const uint64_t id =
                    tables_.row<OrderLineRow>(order_line_at(district, place, line)).order_id;
                lines += id >= oldest ? 1 : 0;
            }
        }
        count(Inconsistency::condition_2,
              row.next_order_id - 1 != most_order || most_order != most_new_order);
        count(Inconsistency::condition_3,
              new_orders != 0 && most_new_order - least_new_order + 1 != new_orders);
        count(Inconsistency::condition_4, promised_lines != lines);
    }

    // With all its content, unless it has left the ring.
    bool is_there(const CommittedOrder& order) const {
        if (order.id < oldest_kept(tables_, order.district)) {
            return true;
        }
        const auto row = tables_.row<OrderRow>(order_at(order.district, order.id));
        const auto new_order = tables_.row<NewOrderRow>(new_order_at(order.district, order.id));
        if (row.id != order.id || row.district != order.district ||
            row.customer != order.customer || row.line_count != order.line_count ||
            row.total_cents != order.total_cents || new_order.id != order.id ||
            new_order.district != order.district) {
            return false;
        }
        for (uint32_t index = 0; index < order.line_count; index++) {
            const auto line =
                tables_.row<OrderLineRow>(order_line_at(order.district, order.id, index));
            const CommittedLine& wanted = order.lines[index];
            if (line.order_id != order.id || line.number != index || line.item != wanted.item ||
                line.warehouse != wanted.warehouse || line.quantity != wanted.quantity ||
                line.amount_cents != wanted.amount_cents()) {
                return false;
            }
        }
        return true;
    }

    void check_customer(uint32_t district, uint32_t customer) {
        const auto row = tables_.row<CustomerRow>(customer_at(district, customer));
        const Expected::Customer& wanted =
            expected_.customers[district * kCustomersEach + customer];
        check_lock(row.version);
        count(Inconsistency::payment,
              row.balance_cents != kFirstBalanceCents - static_cast<int64_t>(wanted.paid_cents) ||
                  row.paid_cents != kFirstPaidCents + wanted.paid_cents ||
                  row.payment_count != wanted.payment_count);
    }

    void check_history(const TransactionClient& client) {
        const std::vector<CommittedPayment>& payments = client.payments();
        for (uint64_t place = 0; place < kHistoryKept; place++) {
            const auto row = tables_.row<HistoryRow>(history_at(client.number(), place));
            // The last serial that has this place.
            const uint64_t rounds =
                payments.size() >= place ? (payments.size() - place) / kHistoryKept : 0;
            const uint64_t serial = payments.size() < place ? 0 : place + rounds * kHistoryKept;
            if (serial == 0 || row.serial != serial) {
                count(Inconsistency::history, row.serial != serial);
                continue;
            }
            const CommittedPayment& wanted = payments[serial - 1];
            count(Inconsistency::history, row.district != wanted.district ||
                                              row.customer_district != wanted.customer_district ||
                                              row.customer != wanted.customer ||
                                              row.amount_cents != wanted.amount_cents);
        }
    }

    void check_stock(uint32_t warehouse, uint32_t item) {
        const auto row = tables_.row<StockRow>(stock_at(warehouse, item));
        const Expected::Stock& wanted = expected_.stock[warehouse * kItems + item];
        check_lock(row.version);
        // The quantity is known by its remainder, whatever the order of the sales.
        count(Inconsistency::stock, row.sold != wanted.sold ||
                                        row.order_count != wanted.order_count ||
                                        row.quantity < 10 || row.quantity > 100 ||
                                        (row.quantity + wanted.sold) % 91 != kFirstStock % 91);
    }

    const TableImage& tables_;
    const TransactionClients& clients_;
    Expected expected_;
    Inconsistencies found_;
};

}  // namespace

uint64_t Inconsistencies::total() const {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

std::string Inconsistencies::text() const {
    std::string text;
    for (size_t kind = 0; kind < kInconsistencies; kind++) {
        if (counts[kind] != 0) {
            text += (text.empty() ? "" : ", ") + std::string(kInconsistencyNames[kind]) + ": " +
                    std::to_string(counts[kind]);
        }
    }
    return text.empty() ? "nothing" : text;
}

TableImage::TableImage() : bytes_(kTablesBytes) {
    for (uint32_t warehouse = 0; warehouse < kWarehouses; warehouse++) {
        WarehouseRow row;
        row.ytd_cents = kDistrictsEach * kFirstYtdCents;
        row.tax_basis_points = 500 + 100 * warehouse;
        std::snprintf(row.name, sizeof(row.name), "W%u", warehouse);
        put(warehouse_at(warehouse), row);
        StockRow stock;
        stock.quantity = kFirstStock;
        for (uint32_t item = 0; item < kItems; item++) {
            put(stock_at(warehouse, item), stock);
        }
    }
    for (uint32_t district = 0; district < kDistricts; district++) {
        DistrictRow row;
        row.next_order_id = 1;
        row.ytd_cents = kFirstYtdCents;
        row.tax_basis_points = 10 * district;
        std::snprintf(row.name, sizeof(row.name), "D%u", district);
        put(district_at(district), row);
        for (uint32_t number = 0; number < kCustomersEach; number++) {
            CustomerRow customer;
            customer.balance_cents = kFirstBalanceCents;
            customer.paid_cents = kFirstPaidCents;
            customer.discount_basis_points = number * 16 % 5000;
            std::snprintf(customer.name, sizeof(customer.name), "C%u of D%u", number, district);
            put(customer_at(district, number), customer);
        }
    }
}

uint64_t count_missed(const TableImage& tables, const TransactionClients& clients,
                      CheckedCommits& checked) {
    uint64_t missed = 0;
    for (const auto& client : clients) {
        size_t& orders = checked.orders[client->number()];
        for (; orders < client->orders().size(); orders++) {
            const CommittedOrder& order = client->orders()[orders];
            missed += order.id < oldest_kept(tables, order.district) ? 1 : 0;
        }
        size_t& payments = checked.payments[client->number()];
        const size_t made = client->payments().size() - payments;
        missed += made > kHistoryKept ? made - kHistoryKept : 0;
        payments += made;
    }
    return missed;
}

Inconsistencies check_tables(const TableImage& tables, const TransactionClients& clients) {
    return Checker(tables, clients).check();
}

}  // namespace tiffin::bench
