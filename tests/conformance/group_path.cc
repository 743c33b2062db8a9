// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Every call with a path, on every kind of path; and link and rename on every pair of kinds.
#include <string>

#include "tests/conformance/answer.h"
#include "tests/conformance/calls.h"
#include "tests/conformance/groups.h"
#include "tests/conformance/kinds.h"

namespace tiffin::conformance {
namespace {

void add_calls(Trials& trials, const std::vector<PathCall>& calls, const std::vector<Kind>& kinds,
               Caller caller) {
    for (const PathCall& call : calls) {
        for (const Kind& kind : kinds) {
            auto add = call.name == "chroot" ? &Trials::add_alone : &Trials::add;
            (trials.*add)(call.name + ", " + kind.name, caller, kind.prepare,
                          [&call, &kind] { return call.run(kind.path.c_str()); });
        }
    }
}

void add_bad_addresses(Trials& trials, const std::vector<PathCall>& calls) {
    for (const PathCall& call : calls) {
        if (call.name != "bind" &&
            call.name != "connect") {  // the path is looked at before the call
            trials.add(
                call.name + ", bad address", Caller::root, [](Scene&) {},
                [&call] { return call.run(reinterpret_cast<const char*>(1)); });
        }
    }
}

// `from` in one directory and `to` in another.
void add_pair(Trials& trials, const PairCall& call, const Kind& from, const Kind& to,
              Caller caller) {
    trials.add(
        call.name + ", " + from.name + " to " + to.name, caller,
        [&from, &to](Scene& scene) {
            scene.directory("1");
            scene.directory("2");
            scene.below("1/");
            from.prepare(scene);
            scene.below("2/");
            to.prepare(scene);
        },
        [&] { return call.run(("1/" + from.path).c_str(), ("2/" + to.path).c_str()); });
}

// A plain object and an unusual path, in both orders.
void add_unusual_pairs(Trials& trials, const PairCall& call, const Kind& kind) {
    struct Partner {
        const char* name;
        void (*prepare)(Scene& scene);
    };
    static constexpr Partner partners[] = {
        {"a missing name", [](Scene& scene) { scene.watch("other"); }},
        {"a file", [](Scene& scene) { scene.file("other"); }},
        {"a directory", [](Scene& scene) { scene.directory("other"); }},
    };
    for (const Partner& partner : partners) {
        auto prepare = [&partner, &kind](Scene& scene) {
            kind.prepare(scene);
            partner.prepare(scene);
        };
        trials.add(call.name + ", " + kind.name + " to " + partner.name, Caller::root, prepare,
                   [&] { return call.run(kind.path.c_str(), "other"); });
        trials.add(call.name + ", " + partner.name + " to " + kind.name, Caller::root, prepare,
                   [&] { return call.run("other", kind.path.c_str()); });
    }
}

struct Special {
    const char* name;
    const char* from;
    const char* to;
};

// Pairs that are related to each other.
constexpr Special kRelated[] = {
    {"a file to itself", "f", "f"},
    {"a directory to itself", "d", "d"},
    {"a link to itself", "l", "l"},
    {"a file to its other name", "f", "g"},
    {"a file to its other name in another directory", "f", "d/g"},
    {"a file to a link to it", "f", "l"},
    {"a link to its file", "l", "f"},
    {"a link to its other name", "l", "m"},
    {"a directory into itself", "d", "d/new"},
    {"a directory into its child", "d", "d/e/new"},
    {"a directory to its child", "d", "d/e"},
    {"a child to its directory", "d/e", "d"},
    {"a file to its directory", "d/g", "d"},
    {"a directory to a file in it", "d", "d/g"},
    {"a file out of its directory", "d/g", "new"},
    {"a directory out of its directory", "d/e", "new"},
    {"a directory into another", "h", "d/e/new"},
    {"a directory over an empty one elsewhere", "h", "d/e"},
    {"an empty directory over a full one", "h", "d"},
    {"a full directory over an empty one", "d", "h"},
    {"a directory with a slash", "d/", "new/"},
    {"a directory to a name with a slash", "d", "new/"},
    {"a file to a name with a slash", "f", "new/"},
    {"a missing name to itself", "no", "no"},
    {"the parent", "..", "new"},
    {"this directory", ".", "new"},
    {"a directory to this one", "d", "."},
};

void add_related(Trials& trials, const PairCall& call) {
    auto prepare = [](Scene& scene) {
        scene.go_below();
        scene.file("f");
        scene.link("f", "g");
        scene.symlink("f", "l");
        scene.link("l", "m");
        scene.directory("d");
        scene.link("f", "d/g");
        scene.directory("d/e");
        scene.directory("h");
        scene.watch("new");
        scene.watch("d/e/new");
        scene.watch("new/g");
    };
    for (const Special& special : kRelated) {
        trials.add(call.name + ", " + special.name, Caller::root, prepare,
                   [&] { return call.run(special.from, special.to); });
    }
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
    for (const char* one : names) {
        if (name == one) {
            return true;
        }
    }
    return false;
}

}  // namespace

void add_path_trials(Trials& trials) {
    for (const auto* calls : {&open_calls(), &name_calls(), &object_calls(), &xattr_calls()}) {
        add_calls(trials, *calls, object_kinds(), Caller::root);
        add_calls(trials, *calls, path_kinds(), Caller::root);
        // In a directory of root's with mode 0755.
        add_calls(trials, *calls, object_kinds(), Caller::other);
        add_bad_addresses(trials, *calls);
    }
}

void add_pair_trials(Trials& trials) {
    for (const PairCall& call : pair_calls()) {
        add_related(trials, call);
        for (const Kind& from : object_kinds()) {
            for (const Kind& to : object_kinds()) {
                add_pair(trials, call, from, to, Caller::root);
            }
        }
        // What is refused before any path is looked at needs no more of this.
        if (is_one_of(call.name, {"link", "rename", "renameat2 RENAME_EXCHANGE"})) {
            for (const Kind& kind : path_kinds()) {
                add_unusual_pairs(trials, call, kind);
            }
        }
    }
}

}  // namespace tiffin::conformance
