// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Transactions in remote memory while its links are cut: how many are inconsistent afterwards, and how fast they are through
// the failure, as tables in Markdown. docs/failover-evaluation.md says what they are.
//
// usage: transactions_load run WAYS DIRECTIONS FAILURES PHASE_MS CLIENTS SEED ADDRESS NAMESPACE LINK LINK
//        transactions_load faults CLIENTS SEED ADDRESS
//
// WAYS are some of none, resend_all, reconnect_all and resubmit (TransactionMemory), DIRECTIONS some of both, to_server and
// to_client, in turn, each with commas. LINK is as LinkCutter::Link::parse() has it. Every failure has three phases of at
// least PHASE_MS: before the cut, until the repair, and after it. Then the clients pause, and everything is checked.
//
// It fails if a way other than resubmit leaves anything inconsistent, or unchecked. `faults` plants one fault after another, and fails
// unless the checks find it.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/links/link_cutter.h"
#include "bench/links/transactions_faults.h"
#include "bench/links/transactions_trial.h"

namespace tiffin::bench {
namespace {

template <typename Names>
size_t index_of(const std::string& name, const Names& names) {
    for (size_t index = 0; index < std::size(names); index++) {
        if (name == names[index]) {
            return index;
        }
    }
    std::fprintf(stderr, "transactions_load: no such thing: %s\n", name.c_str());
    std::exit(EXIT_FAILURE);
}

std::vector<std::string> split(const char* list) {
    std::vector<std::string> parts;
    std::istringstream stream(list);
    for (std::string part; std::getline(stream, part, ',');) {
        parts.push_back(part);
    }
    return parts;
}

uint64_t number(const char* text) { return std::strtoull(text, nullptr, 10); }

int run(char** arguments) {
    TransactionTrial trial;
    for (const std::string& name : split(arguments[3])) {
        constexpr const char* kDirections[] = {"both", "to_server", "to_client"};
        trial.directions.push_back(static_cast<CutDirection>(index_of(name, kDirections)));
    }
    trial.failures = number(arguments[4]);
    trial.phase_ns = number(arguments[5]) * 1'000'000;
    trial.clients = number(arguments[6]);
    trial.seed = number(arguments[7]);
    LinkCutter cutter(arguments[9], {LinkCutter::Link::parse(arguments[10]),
                                     LinkCutter::Link::parse(arguments[11])});
    bool is_well = !trial.directions.empty() && trial.failures > 0 && trial.is_possible();
    std::vector<TransactionResults> results;
    for (const std::string& name : split(arguments[2])) {
        if (is_well) {
            const Way way = static_cast<Way>(index_of(name, kWayArguments));
            results.push_back(run_transactions(trial, way, arguments[8], cutter));
        }
    }
    print_consistency(results);
    print_throughput(results, trial.phase_ns);
    for (const TransactionResults& result : results) {
        if (result.missed != 0) {
            std::fprintf(stderr, "%s: %llu commits left the rings before they were checked\n",
                         kWayNames[static_cast<size_t>(result.way)],
                         static_cast<unsigned long long>(result.missed));
        }
        is_well = is_well && (result.way == Way::resubmit ||
                              (result.inconsistent_failures == 0 && result.missed == 0));
    }
    return is_well ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace tiffin::bench

int main(int count, char** arguments) {
    using namespace tiffin::bench;
    const std::string_view what = count > 1 ? arguments[1] : "";
    if (what == "run" && count == 12) {
        return run(arguments);
    }
    if (what == "faults" && count == 5) {
        return find_planted_faults(number(arguments[2]), number(arguments[3]), arguments[4])
                   ? EXIT_SUCCESS
                   : EXIT_FAILURE;
    }
    std::fprintf(stderr, "bench/failover runs this, with its own arguments\n");
    return EXIT_FAILURE;
}
