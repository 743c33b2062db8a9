// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/damage_trial.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/block_io.h"
#include "fuse/check/check.h"

namespace tiffin::test {
namespace {

using check::Block;
using check::Code;
using check::Finding;
using check::Report;
using tiffinfs::kBlockBytes;

constexpr uint64_t kDeviceBytes = 16U << 20;
constexpr uint32_t kSmallFiles = 60;
const std::string kInBetween = "/in-between";
const std::string kRemoved = "/reserved";
const std::string kLostAndFound = "/lost+found";

// The hash key and with it the place of every name are always the same.
void make_volume(CrashDevice& device, TestVolume& volume) {
    MUST(volume.make());
    tiffinfs::SuperblockSet set;
    MUST(tiffinfs::read_superblocks(device, set));
    TIFFIN_ASSERT(set.count > 0);
    std::memset(set.found[0].hash_key, 7, sizeof set.found[0].hash_key);
    MUST(tiffinfs::write_superblock(device, set.found[0]));
    MUST(volume.mount());
    MUST(populate(volume, kSmallFiles));
    for (uint64_t i = 0; i < 40; ++i) {
        // Each block an extent of its own.
        MUST(volume.write("/fragments", 2 * i * kBlockBytes, test_content(500 + i, kBlockBytes)));
    }
    MUST(volume.unmount());
}

// A file more, and a checkpoint: the generations have all but a few leaves in common.
void add_generation(TestVolume& volume, const std::string& path) {
    MUST(volume.mount());
    MUST(volume.write(path, 0, test_content(path.size(), 2 * kBlockBytes)));
    MUST(volume.unmount());
}

bool is_below(const std::string& path, const std::string& directory) {
    return path.size() > directory.size() && path.compare(0, directory.size(), directory) == 0 &&
           path[directory.size()] == '/';
}

// Whether `text` has `word`, and not as a part of a longer number or name.
bool has_word(const std::string& text, const std::string& word) {
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) {
        const auto next = static_cast<unsigned char>(text.c_str()[at + word.size()]);
        if (std::isalnum(next) == 0) {
            return true;
        }
    }
    return false;
}

std::string text_of(const Report& report) {
    std::string text;
    for (const Finding& finding : report.findings) {
        text += "    " + finding.line() + "\n";
    }
    return text;
}

}  // namespace

// ---- The volume ---------------------------------------------------------------------------------

// A sound volume, what is in it, and which of its blocks are in use for what.
struct DamageTrials::Volume {
    explicit Volume(bool with_journal);

    void find_blocks();
    // In the order of their keys, since their places are not always the same.
    void add_nodes(uint64_t block, uint32_t level, std::set<uint64_t>& seen,
                   std::vector<uint64_t>& nodes);
    void add_data(const Block& leaf);

    CrashDevice device{kDeviceBytes};
    SeenTree original;
    std::map<std::string, vfs::NodeId> nodes_by_path;
    // What the journal alone has, and what it has beside the newest generation, not the older one.
    std::set<std::string> in_journal;
    std::set<std::string> in_newest;

    std::vector<uint64_t> superblocks;
    std::vector<uint64_t> bitmaps;
    std::vector<uint64_t> journal;
    std::vector<uint64_t> newest_nodes;
    std::vector<uint64_t> older_nodes;  // that the newest tree has not
    std::vector<uint64_t> data;
};

DamageTrials::Volume::Volume(bool with_journal) {
    TestVolume volume(device);
    make_volume(device, volume);
    add_generation(volume, "/later-1");
    add_generation(volume, "/later-2");
    if (with_journal) {
        MUST(volume.mount());
        for (const char* path : {"/in-journal-1", "/many/in-journal-2"}) {
            MUST(volume.write(path, 0, test_content(3, 9000)));
            MUST(volume.sync());
            in_journal.insert(path);
        }
        volume.abandon();
    } else {
        in_newest.insert("/later-2");
    }
    find_blocks();

    auto copy = device.after_crash(CrashOutcome::keep_completed, 0);
    TestVolume seen(*copy);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = true;
    MUST(seen.mount(options));
    original = MUST(seen.see());
    for (const auto& [path, object] : original) {
        nodes_by_path[path] = MUST(seen.find(path));
    }
}

void DamageTrials::Volume::find_blocks() {
    tiffinfs::SuperblockSet set;
    MUST(tiffinfs::read_superblocks(device, set));
    const tiffinfs::Superblock& newest = set.found[0];
    for (uint64_t slot = 0; slot < 2; ++slot) {
        for (uint32_t copy = 0; copy < 2; ++copy) {
            superblocks.push_back(tiffinfs::superblock_block(newest.total_blocks, slot, copy));
        }
        bitmaps.push_back(tiffinfs::bitmap_block(0, static_cast<uint32_t>(slot)));
    }
    for (uint64_t i = 0; i < newest.journal_block_count; ++i) {
        Block page;
        TIFFIN_ASSERT(check::read_block(device, newest.journal_first_block + i, page));
        if (std::any_of(page.bytes, page.bytes + kBlockBytes,
                        [](auto byte) { return byte != 0; })) {
            journal.push_back(newest.journal_first_block + i);
        }
    }
    std::set<uint64_t> seen;
    add_nodes(newest.root_block, newest.root_level, seen, newest_nodes);
    for (uint32_t i = 1; i < set.count; ++i) {
        add_nodes(set.found[i].root_block, set.found[i].root_level, seen, older_nodes);
    }
    TIFFIN_ASSERT(newest_nodes.size() > 10 && !journal.empty() && !data.empty());
}

void DamageTrials::Volume::add_nodes(uint64_t block, uint32_t level, std::set<uint64_t>& seen,
                                     std::vector<uint64_t>& nodes) {
    if (!seen.insert(block).second) {
        return;
    }
    nodes.push_back(block);
    Block page;
    TIFFIN_ASSERT(check::read_block(device, block, page));
    if (level == 0) {
        add_data(page);
        return;
    }
    for (uint32_t i = 0; i < tiffinfs::inner_count(page.bytes); ++i) {
        add_nodes(tiffinfs::inner_entry(page.bytes, i).child_block, level - 1, seen, nodes);
    }
}

void DamageTrials::Volume::add_data(const Block& leaf) {
    tiffinfs::NodeHeader header;
    std::memcpy(&header, leaf.bytes, sizeof header);
    for (uint32_t i = 0; i < header.count; ++i) {
        if (tiffinfs::leaf_key(leaf.bytes, i).kind() != tiffinfs::Kind::extent) {
            continue;
        }
        tiffinfs::ExtentValue extent;
        std::memcpy(&extent, tiffinfs::leaf_value(leaf.bytes, i).data(), sizeof extent);
        for (uint64_t j = 0; j < extent.block_count && data.size() < 1000; ++j) {
            data.push_back(extent.physical_block + j);
        }
    }
}

// ---- One trial ----------------------------------------------------------------------------------

class DamageTrials::Trial {
  public:
    Trial(DamageTrials& trials, Volume& volume, Choices& choices)
        : volume_(volume),
          choices_(choices),
          met_(trials.met_),
          device_(volume.device.after_crash(CrashOutcome::keep_completed, 0)) {}

    std::string run();

  private:
    enum class When : uint8_t { before_repair, after_repair };
    // What is done in a mount, beside reading everything.
    struct Use {
        bool read_only = false;
        bool goes_on = false;  // errors=continue
        bool changes = false;
        bool loses_power = false;
    };
    // What became of an object.
    struct State {
        bool missing = false;
        bool error = false;      // it, or a part of it, cannot be read
        std::string difference;  // what is different without an error
        bool wrong = false;      // content that it never had
        bool intact() const { return !missing && !error && difference.empty() && !wrong; }
    };

    // ---- Damaging ----
    void damage();
    void damage_block(const std::vector<uint64_t>& blocks, uint32_t bytes, bool is_node);
    void change_page(unsigned char* page, uint32_t first, uint32_t bytes);

    // ---- Looking ----
    std::string mount_and_read(const Use& use, When when);
    std::string look_at_all(TestVolume& volume, When when);
    State look_at(TestVolume& volume, const std::string& path);
    void compare_content(TestVolume& volume, vfs::NodeId node, const std::string& content,
                         State& state);
    std::string judge(const std::string& path, const State& state, When when);
    std::string look_for_others(TestVolume& volume);
    bool is_named(const std::string& path) const;
    std::string check_again(const std::string& when);
    std::string failure(const std::string& what) const;

    Volume& volume_;
    Choices& choices_;
    Met& met_;
    std::unique_ptr<CrashDevice> device_;
    std::string story_;
    bool forged_ = false;
    bool journal_damaged_ = false;
    bool is_removed_ = false;  // kRemoved, or may be
    size_t superblocks_damaged_ = 0;
    bool all_intact_ = true;  // of what the last mount has shown
    Report checked_;
    Report repaired_;
};

std::string DamageTrials::Trial::failure(const std::string& what) const {
    return what + "\n  " + story_ + "\n  the check says:\n" + text_of(checked_) +
           "  the repair says:\n" + text_of(repaired_);
}

void DamageTrials::Trial::damage() {
    const uint64_t count = 1 + choices_.below(4);
    for (uint64_t i = 0; i < count; ++i) {
        const uint64_t kind = choices_.below(16);
        if (kind == 0) {
            ++superblocks_damaged_;
            damage_block(volume_.superblocks, tiffinfs::kSuperblockBytes, false);
        } else if (kind == 1) {
            damage_block(volume_.bitmaps, kBlockBytes, false);
        } else if (kind == 2) {
            journal_damaged_ = true;
            damage_block(volume_.journal, kBlockBytes, false);
        } else if (kind == 3 && !volume_.older_nodes.empty()) {
            damage_block(volume_.older_nodes, kBlockBytes, true);
        } else if (kind < 13) {
            damage_block(volume_.newest_nodes, kBlockBytes, true);
        } else {
            damage_block(volume_.data, kBlockBytes, false);
        }
    }
}

void DamageTrials::Trial::damage_block(const std::vector<uint64_t>& blocks, uint32_t bytes,
                                       bool is_node) {
    const uint64_t block = blocks[choices_.below(blocks.size())];
    Block page;
    TIFFIN_ASSERT(check::read_block(*device_, block, page));
    const bool forge = is_node && choices_.below(8) == 0;
    // What ties a node to its place stays where its checksum is made right again: damage to that is met without.
    change_page(page.bytes, forge ? 33 : 0, bytes);
    if (forge) {
        forged_ = true;
        tiffinfs::seal_page(page.bytes);
        story_ += " (checksum made right)";
    }
    story_ += " of block " + std::to_string(block) + ";";
    device_->overwrite(block * kBlockBytes, page.bytes, sizeof page.bytes);
}

void DamageTrials::Trial::change_page(unsigned char* page, uint32_t first, uint32_t bytes) {
    const uint64_t action = choices_.below(6);
    if (action < 3) {
        const uint64_t flips = action < 2 ? 1 : 2 + choices_.below(8);
        for (uint64_t i = 0; i < flips; ++i) {
            page[first + choices_.below(bytes - first)] ^=
                static_cast<unsigned char>(1U << choices_.below(8));
        }
        story_ += " flip " + std::to_string(flips) + " bits";
    } else if (action == 3) {
        std::memset(page + first, 0, bytes - first);
        story_ += " zero all";
    } else if (action == 4) {
        const uint64_t begin = first + choices_.below(bytes - first);
        const uint64_t length = 1 + choices_.below(bytes - begin);
        const std::string noise = test_content(1 + choices_.below(256), length);
        std::memcpy(page + begin, noise.data(), length);
        story_ += " overwrite " + std::to_string(length) + " bytes at " + std::to_string(begin);
    } else {
        // As a write that went to the wrong place would.
        const uint64_t other = volume_.newest_nodes[choices_.below(volume_.newest_nodes.size())];
        Block source;
        TIFFIN_ASSERT(check::read_block(volume_.device, other, source));
        std::memcpy(page + first, source.bytes + first, bytes - first);
        story_ += " copy of block " + std::to_string(other) + " in place";
    }
}

// ---- Looking ------------------------------------------------------------------------------------

void DamageTrials::Trial::compare_content(TestVolume& volume, vfs::NodeId node,
                                          const std::string& content, State& state) {
    std::string bytes(content.size(), '\0');
    const auto read = [&](uint64_t offset, uint64_t length) {
        const vfs::IoVector buffer{bytes.data() + offset, length};
        Result<size_t> got =
            volume.file_system().read(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1));
        return got.ok() && *got == length;
    };
    if (read(0, bytes.size()) && bytes == content) {
        return;
    }
    for (uint64_t offset = 0; offset < content.size(); offset += kBlockBytes) {
        const uint64_t length = std::min<uint64_t>(kBlockBytes, content.size() - offset);
        if (!read(offset, length)) {
            state.error = true;
            continue;
        }
        for (uint64_t i = offset; i < offset + length; ++i) {
            if (bytes[i] == content[i]) {
                continue;
            }
            if (bytes[i] != 0) {
                state.wrong = true;
            }
            if (state.difference.empty()) {
                state.difference = "byte " + std::to_string(i) + " reads as " +
                                   std::to_string(static_cast<unsigned char>(bytes[i]));
            }
        }
    }
}

DamageTrials::Trial::State DamageTrials::Trial::look_at(TestVolume& volume,
                                                        const std::string& path) {
    const SeenObject& original = volume_.original.at(path);
    State state;
    Result<vfs::Attributes> found = [&] {
        Result<vfs::Attributes> there = volume.attributes(path);
        if (there.ok() || there.error() != Error::enoent) {
            return there;
        }
        state.missing = true;
        return volume.attributes(kLostAndFound + "/#" +
                                 std::to_string(volume_.nodes_by_path.at(path)));
    }();
    if (!found.ok()) {
        state.error = found.error() != Error::enoent;
        state.missing = !state.error;
        return state;
    }
    vfs::FileSystem& fs = volume.file_system();
    if (found->mode != original.mode) {
        state.difference = "its mode is " + std::to_string(found->mode);
        if (((found->mode ^ original.mode) & vfs::mode::type_mask) != 0) {
            return state;
        }
    }
    if (vfs::mode::is_regular(original.mode)) {
        if (found->size_bytes != original.size_bytes) {
            state.difference = "its size is " + std::to_string(found->size_bytes);
        }
        compare_content(volume, found->node, original.content.substr(0, found->size_bytes), state);
    } else if (vfs::mode::is_symlink(original.mode)) {
        unsigned char target[vfs::kSymlinkMaxBytes];
        Result<size_t> size = fs.read_link(found->node, MutableByteSpan(target, sizeof target));
        if (!size.ok()) {
            state.error = true;
        } else if (std::string(reinterpret_cast<char*>(target), *size) != original.content) {
            state.difference = "its target has " + std::to_string(*size) + " bytes";
        }
    }
    for (const auto& [name, value] : original.xattrs) {
        std::vector<unsigned char> got(value.size() + 1);
        Result<size_t> size = fs.get_xattr(found->node, vfs::Name(name.data(), name.size()),
                                           MutableByteSpan(got.data(), got.size()));
        if (!size.ok() && size.error() != Error::enodata) {
            state.error = true;
        } else if (!size.ok() || *size != value.size() ||
                   std::memcmp(got.data(), value.data(), value.size()) != 0) {
            state.difference = "its attribute " + name + (size.ok() ? " is different" : " is gone");
        }
    }
    return state;
}

// fsck names an object as damaged by its path or its node.
bool DamageTrials::Trial::is_named(const std::string& path) const {
    const std::string node = "node " + std::to_string(volume_.nodes_by_path.at(path));
    const std::string quoted = '"' + path + '"';
    for (const Report* report : {&checked_, &repaired_}) {
        for (const Finding& finding : report->findings) {
            if (finding.severity != check::Severity::damage) {
                continue;
            }
            if (has_word(finding.where, node) || has_word(finding.what, node) ||
                finding.line().find(quoted) != std::string::npos) {
                return true;
            }
        }
    }
    return false;
}

std::string DamageTrials::Trial::judge(const std::string& path, const State& state, When when) {
    // A damaged frame behind which there is none looks like one that was cut off, and nobody was told that such a
    // one is durable.
    if (state.intact() ||
        (state.missing && journal_damaged_ && volume_.in_journal.count(path) != 0)) {
        return {};
    }
    all_intact_ = false;
    const std::string what = path + (state.missing ? " is missing" : "") +
                             (state.error ? " has errors" : "") +
                             (state.difference.empty() ? "" : ": " + state.difference);
    if (when == When::before_repair) {
        // Where the newest tree and the journal are damaged, a mount shows the older tree, and writes nothing.
        if (state.missing && journal_damaged_ && volume_.in_newest.count(path) != 0) {
            return {};
        }
        const bool silent = state.missing || state.wrong || !state.difference.empty();
        return silent ? failure("before the repair, " + what) : std::string();
    }
    if (state.wrong) {
        return failure("after the repair there is wrong content: " + what);
    }
    met_.missing += state.missing ? 1 : 0;
    met_.errors += state.error ? 1 : 0;
    if (!state.difference.empty()) {
        if (!is_named(path)) {
            return failure("after the repair, and not named: " + what);
        }
        ++met_.named;
    }
    return {};
}

// What was not there before.
std::string DamageTrials::Trial::look_for_others(TestVolume& volume) {
    Result<SeenTree> seen = volume.see();
    if (!seen.ok()) {
        return {};  // what cannot be read has been judged already
    }
    for (const auto& [path, object] : *seen) {
        if (volume_.original.count(path) == 0 && path != kInBetween && path != kLostAndFound &&
            !is_below(path, kLostAndFound)) {
            return failure(path + " was not there before");
        }
    }
    return {};
}

std::string DamageTrials::Trial::look_at_all(TestVolume& volume, When when) {
    all_intact_ = true;
    for (const auto& [path, object] : volume_.original) {
        const State state = look_at(volume, path);
        if (forged_ || (is_removed_ && path == kRemoved)) {
            continue;  // anything may be there; it was read
        }
        if (std::string wrong = judge(path, state, when); !wrong.empty()) {
            return wrong;
        }
    }
    for (const auto& [path, object] : volume_.original) {
        if (vfs::mode::is_directory(object.mode)) {
            (void)volume.list(path).ok();
        }
    }
    return forged_ ? std::string() : look_for_others(volume);
}

std::string DamageTrials::Trial::mount_and_read(const Use& use, When when) {
    TestVolume volume(*device_);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = use.read_only;
    if (use.goes_on) {
        options.volume.errors = tiffinfs::ErrorsPolicy::continue_running;
    }
    if (const Result<void> mounted = volume.mount(options); !mounted.ok()) {
        ++met_.refused;
        all_intact_ = false;
        return when == When::before_repair ? std::string()
                                           : failure("after the repair a mount fails with error " +
                                                     std::to_string(errno_value(mounted.error())));
    }
    if (use.changes) {
        // What is free then is used again.
        is_removed_ = true;
        (void)volume.unlink(kRemoved).ok();
        (void)volume.sync().ok();
        (void)volume.write(kInBetween, 0, test_content(9, 400'000)).ok();
        (void)volume.sync().ok();
    }
    std::string wrong = look_at_all(volume, when);
    if (use.loses_power) {
        volume.abandon();
        device_ = device_->after_crash(CrashOutcome::keep_random_units, choices_.below(UINT32_MAX));
    } else {
        (void)volume.unmount().ok();
    }
    return wrong;
}

// ---- All of it ----------------------------------------------------------------------------------

// What is found must be what the repair has named as not repairable: file data that is damaged.
std::string DamageTrials::Trial::check_again(const std::string& when) {
    const auto place = [](const Finding& finding) {
        return finding.where.substr(std::min(finding.where.find("(block"), finding.where.size()));
    };
    const Report again = check::check_file_system(*device_, {.verify_data = true});
    for (const Finding& finding : again.findings) {
        const bool known = std::any_of(repaired_.findings.begin(), repaired_.findings.end(),
                                       [&](const Finding& before) {
                                           return !before.repaired && before.code == finding.code &&
                                                  (place(before) == place(finding));
                                       });
        if (!known) {
            return failure(when + " a check finds something else: " + finding.line());
        }
    }
    return {};
}

std::string DamageTrials::Trial::run() {
    damage();
    if (const uint64_t way = choices_.below(6); way >= 2) {
        const Use use{
            .goes_on = way % 2 == 1, .changes = choices_.below(2) == 1, .loses_power = way >= 4};
        story_ += std::string(" mount") + (use.goes_on ? ", errors=continue" : "") +
                  (use.changes ? ", change" : "") + (use.loses_power ? ", power failure" : "");
        if (std::string wrong = mount_and_read(use, When::before_repair); !wrong.empty()) {
            return wrong;
        }
    }
    device_->reset_counts();
    if (std::string wrong = mount_and_read({.read_only = true}, When::before_repair);
        !wrong.empty()) {
        return wrong;
    }
    checked_ = check::check_file_system(*device_, {.verify_data = true});
    if (device_->counts().writes + device_->counts().discards != 0) {
        return failure("a read-only mount or a check has written");
    }
    if (checked_.clean() && !all_intact_ && !forged_) {
        return failure("the check finds nothing, but not all could be read");
    }
    repaired_ = check::check_file_system(*device_, {.repair = true, .verify_data = true});
    if (!repaired_.is_volume && superblocks_damaged_ < 4) {
        return failure("the volume is not recognised, though a superblock is whole");
    }
    if (!repaired_.is_volume) {
        ++met_.beyond_repair;
        return {};
    }
    if (repaired_.has(Code::repair_failed) || repaired_.has(Code::repair_unfinished)) {
        return failure("the repair fails");
    }
    if (std::string wrong = check_again("after the repair"); !wrong.empty()) {
        return wrong;
    }
    if (std::string wrong = mount_and_read({}, When::after_repair); !wrong.empty()) {
        return wrong;
    }
    if (!all_intact_ && !forged_ && repaired_.damage == 0) {
        return failure("something is lost, and the repair calls all that it found harmless");
    }
    met_.intact += all_intact_ && !forged_ ? 1 : 0;
    return check_again("after the repair and a mount");
}

DamageTrials::DamageTrials() {
    volumes_.push_back(std::make_unique<Volume>(false));
    volumes_.push_back(std::make_unique<Volume>(true));
}

DamageTrials::~DamageTrials() = default;

std::string DamageTrials::run(Choices& choices) {
    return Trial(*this, *volumes_[choices.below(2)], choices).run();
}

}  // namespace tiffin::test
