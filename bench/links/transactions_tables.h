// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tables of the transactions, as they lie in the data of one volume: rows of fixed size in whole units of 64 bytes, each
// at an address that its keys give. Orders are kept in rings: a district's order that is kOrdersKept younger takes the place
// of an older one, as if that had been delivered.
//
// A row that is changed under a lock begins with its version. Bit 63 says that it is locked; the other bits then name the
// client and its attempt. Whatever such a change writes is in the version's own 64 bytes, which a read never sees torn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tiffin::bench {

constexpr uint32_t kWarehouses = 2;
constexpr uint32_t kDistrictsEach = 10;
constexpr uint32_t kDistricts = kWarehouses * kDistrictsEach;
constexpr uint32_t kCustomersEach = 300;  // of a district
constexpr uint32_t kItems = 10'000;       // in stock, in each warehouse
constexpr uint32_t kOrdersKept = 2048;    // of a district
constexpr uint32_t kFewestLines = 5;
constexpr uint32_t kMostLines = 15;
constexpr uint32_t kMostClients = 8;
constexpr uint32_t kHistoryKept = 16'384;  // of a client

constexpr uint64_t kLocked = uint64_t{1} << 63;
constexpr uint32_t kClientShift = 48;

constexpr uint64_t kFirstStock = 50;
constexpr int64_t kFirstBalanceCents = -1000;
constexpr uint64_t kFirstPaidCents = 1000;
constexpr uint64_t kFirstYtdCents = 3'000'000;  // of a district

// Changed by fetch_add only, so without a lock.
struct WarehouseRow {
    uint64_t ytd_cents = 0;
    uint32_t tax_basis_points = 0;
    char name[10] = {};
    char rest[42] = {};
};
struct DistrictRow {
    uint64_t version = 0;
    uint64_t next_order_id = 0;
    uint64_t ytd_cents = 0;  // by fetch_add, without the lock
    uint32_t tax_basis_points = 0;
    char name[10] = {};
    char rest[26] = {};
};
struct CustomerRow {
    uint64_t version = 0;
    int64_t balance_cents = 0;
    uint64_t paid_cents = 0;
    uint64_t payment_count = 0;
    uint32_t discount_basis_points = 0;
    char rest[28] = {};
    char name[64] = {};
};
struct StockRow {
    uint64_t version = 0;
    uint64_t quantity = 0;
    uint64_t sold = 0;  // S_YTD
    uint64_t order_count = 0;
    char rest[32] = {};
};
// Ids of orders are 1, 2, ... in each district; 0: the place was never used.
struct OrderRow {
    uint64_t id = 0;
    uint32_t district = 0;
    uint32_t customer = 0;
    uint32_t line_count = 0;
    uint32_t client = 0;
    uint64_t total_cents = 0;
    char rest[32] = {};
};
struct NewOrderRow {
    uint64_t id = 0;
    uint32_t district = 0;
    char rest[52] = {};
};
struct OrderLineRow {
    uint64_t order_id = 0;
    uint32_t number = 0;
    uint32_t item = 0;
    uint32_t warehouse = 0;  // that supplies it
    uint32_t quantity = 0;
    uint64_t amount_cents = 0;
    char rest[32] = {};
};
struct HistoryRow {
    uint64_t serial = 0;  // of the client's payments: 1, 2, ...
    uint32_t district = 0;
    uint32_t customer_district = 0;
    uint32_t customer = 0;
    uint32_t amount_cents = 0;
    char rest[40] = {};
};
static_assert(sizeof(WarehouseRow) == 64 && sizeof(DistrictRow) == 64);
static_assert(sizeof(CustomerRow) == 128 && offsetof(CustomerRow, name) == 64);
static_assert(sizeof(StockRow) == 64 && sizeof(OrderRow) == 64 && sizeof(NewOrderRow) == 64);
static_assert(sizeof(OrderLineRow) == 64 && sizeof(HistoryRow) == 64);

// ---- Where the rows are --------------------------------------------------------------------------------------

constexpr uint64_t kDistrictsAt = kWarehouses * sizeof(WarehouseRow);
constexpr uint64_t kCustomersAt = kDistrictsAt + kDistricts * sizeof(DistrictRow);
constexpr uint64_t kStockAt =
    kCustomersAt + uint64_t{kDistricts} * kCustomersEach * sizeof(CustomerRow);
constexpr uint64_t kOrdersAt = kStockAt + uint64_t{kWarehouses} * kItems * sizeof(StockRow);
constexpr uint64_t kNewOrdersAt = kOrdersAt + uint64_t{kDistricts} * kOrdersKept * sizeof(OrderRow);
constexpr uint64_t kOrderLinesAt =
    kNewOrdersAt + uint64_t{kDistricts} * kOrdersKept * sizeof(NewOrderRow);
constexpr uint64_t kHistoryAt =
    kOrderLinesAt + uint64_t{kDistricts} * kOrdersKept * kMostLines * sizeof(OrderLineRow);
constexpr uint64_t kTablesBytes =
    kHistoryAt + uint64_t{kMostClients} * kHistoryKept * sizeof(HistoryRow);

constexpr uint64_t warehouse_at(uint32_t warehouse) { return warehouse * sizeof(WarehouseRow); }
// Districts are numbered through all warehouses.
constexpr uint32_t warehouse_of(uint32_t district) { return district / kDistrictsEach; }
constexpr uint64_t district_at(uint32_t district) {
    return kDistrictsAt + district * sizeof(DistrictRow);
}
constexpr uint64_t customer_at(uint32_t district, uint32_t customer) {
    return kCustomersAt + (uint64_t{district} * kCustomersEach + customer) * sizeof(CustomerRow);
}
constexpr uint64_t stock_at(uint32_t warehouse, uint32_t item) {
    return kStockAt + (uint64_t{warehouse} * kItems + item) * sizeof(StockRow);
}
constexpr uint64_t place_of_order(uint32_t district, uint64_t id) {
    return uint64_t{district} * kOrdersKept + id % kOrdersKept;
}
constexpr uint64_t order_at(uint32_t district, uint64_t id) {
    return kOrdersAt + place_of_order(district, id) * sizeof(OrderRow);
}
constexpr uint64_t new_order_at(uint32_t district, uint64_t id) {
    return kNewOrdersAt + place_of_order(district, id) * sizeof(NewOrderRow);
}
constexpr uint64_t order_line_at(uint32_t district, uint64_t id, uint32_t line) {
    return kOrderLinesAt +
           (place_of_order(district, id) * kMostLines + line) * sizeof(OrderLineRow);
}
constexpr uint64_t history_at(uint32_t client, uint64_t serial) {
    return kHistoryAt +
           (uint64_t{client} * kHistoryKept + serial % kHistoryKept) * sizeof(HistoryRow);
}

// There is no table of items: the price follows from the number.
constexpr uint64_t price_cents(uint32_t item) { return 100 + uint64_t{item} * 7919 % 9901; }
// Of what is left of an item: always 10 to 100, filled up by 91.
constexpr uint64_t stock_after(uint64_t quantity, uint64_t ordered) {
    return quantity >= ordered + 10 ? quantity - ordered : quantity + 91 - ordered;
}

}  // namespace tiffin::bench
