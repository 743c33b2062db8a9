// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: whichever single allocation of an operation fails, the operation is done or answers enomem; in the
// second case nothing has changed and the same operation succeeds as soon as there is memory; nothing is
// lost, no lock stays held, and the checker finds nothing. Method: every kind of operation, on a fresh mount
// with nothing in memory, once for each of its allocations; what the volume must look like afterwards comes
// from a run without failures. Single requests to the device are in single_failure_test.cc.
#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "fs/tiffinfs/attributes/acl.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/findings.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kDeviceBytes = 16U << 20;
// More than the longest operation here makes: the sweep must have ended before.
constexpr uint64_t kMaximumAllocations = 1000;
const vfs::Caller kRoot{0, 0, 022};

struct Operation {
    const char* name;
    Result<void> (*run)(TestVolume& volume);
    // Several transactions, of which the first may be done when a later one fails.
    bool may_end_halfway = false;
};
void PrintTo(const Operation& operation, std::ostream* out) { *out << operation.name; }

// ---- Operations that TestVolume does not have ------------------------------------------------------

// An answer that no operation here gives, for wrong content.
constexpr Error kWrong = Error::exdev;
Result<void> expect_same(bool same) { return same ? Result<void>() : Result<void>(kWrong); }

// Attributes and their reference are not wanted.
Result<void> let_go(TestVolume& volume, Result<vfs::Attributes> result) {
    if (!result.ok()) {
        return result.error();
    }
    volume.file_system().forget(result->node, 1);
    return {};
}

template <typename T>
Result<void> no_value(const Result<T>& result) {
    return result.ok() ? Result<void>() : Result<void>(result.error());
}

class CountingSink final : public vfs::DirectorySink {
  public:
    explicit CountingSink(vfs::FileSystem& file_system) : file_system_(file_system) {}
    bool add(const vfs::DirectoryEntry& entry) override {
        ++entries;
        cookie = entry.next_cookie;
        if (entry.attributes != nullptr && !(entry.name == vfs::Name("."))) {
            nodes_.push_back(entry.node);
        }
        return true;
    }
    void forget_all() {
        for (const vfs::NodeId node : nodes_) {
            file_system_.forget(node, 1);
        }
    }
    size_t entries = 0;
    uint64_t cookie = 0;

  private:
    vfs::FileSystem& file_system_;
    std::vector<vfs::NodeId> nodes_;
};

Result<void> read_directory(TestVolume& volume, bool with_attributes) {
    CountingSink sink(volume.file_system());
    const vfs::NodeId node = TRY(volume.find("/many"));
    Result<void> read;
    size_t before = 0;
    do {
        // Entries that came before an error are a good answer; the next call goes on behind them.
        before = sink.entries;
        read = volume.file_system().read_directory(node, 0, sink.cookie, with_attributes, sink);
    } while (read.ok() && sink.entries != before);
    sink.forget_all();
    return read.ok() ? expect_same(sink.entries == 41) : read;
}

class TextSink final : public vfs::ByteSink {
  public:
    bool append(const void* /*data*/, size_t size_bytes) override {
        bytes += size_bytes;
        return true;
    }
    size_t bytes = 0;
};

std::string acl_text() {
    using tiffinfs::AclEntry;
    namespace tag = tiffinfs::acl_tag;
    const AclEntry entries[] = {{tag::owner, 7, tiffinfs::kAclNoId},
                                {tag::user, 6, 1000},
                                {tag::owning_group, 5, tiffinfs::kAclNoId},
                                {tag::mask, 6, tiffinfs::kAclNoId},
                                {tag::others, 0, tiffinfs::kAclNoId}};
    const tiffinfs::AclHeader header{tiffinfs::kAclVersion};
    std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
    return text.append(reinterpret_cast<const char*>(entries), sizeof(entries));
}

Result<void> write_through_a_grant(TestVolume& volume, bool commit) {
    vfs::FileSystem& fs = volume.file_system();
    const vfs::NodeId node = TRY(volume.find("/d/blocks"));
    auto grant = std::make_unique<vfs::WriteGrant>();
    TRY(fs.begin_write(node, 2 * kBlock, 4 * kBlock, 0, *grant));
    Result<void> granted = fs.grant_write(*grant, 2 * kBlock);
    if (!granted.ok() || !commit) {
        EXPECT_TRUE(fs.end_write(*grant).ok());
        return granted;
    }
    std::vector<uint32_t> checksums;
    for (uint32_t i = 0; i < grant->segment_count; ++i) {
        const vfs::WriteSegment& segment = grant->segments[i];
        std::string content = test_content(77, segment.length_bytes);
        TRY(fs.device()->write(segment.device_offset_bytes, content.data(), content.size()));
        for (size_t offset = 0; offset < content.size(); offset += kBlock) {
            checksums.push_back(host::crc32c(0, content.data() + offset, kBlock));
        }
    }
    Result<uint64_t> committed =
        fs.commit_write(*grant, Span<const uint32_t>(checksums.data(), checksums.size()), {});
    EXPECT_TRUE(fs.end_write(*grant).ok());
    return committed.ok() ? Result<void>() : committed.error();
}

Result<void> read_through_a_mapping(TestVolume& volume) {
    vfs::FileSystem& fs = volume.file_system();
    const vfs::NodeId node = TRY(volume.find("/d/fragments"));
    auto mapping = std::make_unique<vfs::ReadMapping>();
    TRY(fs.map_read(node, 0, 12 * kBlock, *mapping));
    Result<void> done;
    for (uint32_t i = 0; i < mapping->segment_count && done.ok(); ++i) {
        const vfs::ReadSegment& segment = mapping->segments[i];
        if (segment.kind != vfs::SegmentKind::device) {
            continue;
        }
        std::string content(segment.length_bytes, '\0');
        const vfs::IoVector piece{content.data(), content.size()};
        done = fs.device()->read(segment.device_offset_bytes, content.data(), content.size());
        if (done.ok()) {
            done = fs.verify_read(*mapping, i, Span<const vfs::IoVector>(&piece, 1), true);
        }
    }
    fs.release_read(*mapping);
    return done;
}

Result<void> name_a_temporary_file(TestVolume& volume) {
    vfs::FileSystem& fs = volume.file_system();
    const vfs::Attributes made =
        TRY(fs.make_temporary(kRoot, vfs::kRootNode, vfs::mode::regular | 0600, {}));
    const Result<vfs::Attributes> linked = fs.link({}, made.node, vfs::kRootNode, "named");
    fs.forget(made.node, linked.ok() ? 2 : 1);
    return no_value(linked);
}

// To another mode or another owner, by the bit in `valid`.
Result<void> change(TestVolume& volume, const char* path, uint32_t valid) {
    vfs::AttributeChange wanted;
    wanted.valid = valid;
    wanted.mode = 0640;
    wanted.user_id = 1000;
    return no_value(volume.file_system().set_attributes(kRoot, TRY(volume.find(path)), wanted));
}

Result<void> scrub(TestVolume& volume) {
    vfs::ScrubProgress progress;
    while (!progress.finished) {
        TRY(volume.file_system().scrub(progress));
    }
    return expect_same(progress.errors_found == 0);
}

tiffinfs::Volume& volume_of(TestVolume& volume) {
    return static_cast<tiffinfs::TiffinFileSystem&>(volume.file_system()).volume();
}

Result<void> change_and_checkpoint(TestVolume& volume) {
    TRY(volume.write("/d/inline", 0, "changed"));
    return volume_of(volume).checkpoint();
}

constexpr uint32_t kPunch = vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size;

const Operation kOperations[] = {
    {"Lookup", [](TestVolume& v) { return no_value(v.find("/many/file-17")); }},
    {"LookupOfWhatIsMissing",
     [](TestVolume& v) -> Result<void> {
         const Result<vfs::NodeId> found = v.find("/many/none");
         return !found.ok() && found.error() == Error::enoent ? Result<void>() : no_value(found);
     }},
    {"FindNode",
     [](TestVolume& v) -> Result<void> {
         return let_go(v, v.file_system().find_node(TRY(v.find("/d/inline")), 0));
     }},
    {"ReadDirectory", [](TestVolume& v) { return read_directory(v, false); }},
    {"ReadDirectoryWithAttributes", [](TestVolume& v) { return read_directory(v, true); }},
    {"ReadInline",
     [](TestVolume& v) -> Result<void> {
         return expect_same(TRY(v.read("/d/inline")) == test_content(1, 700));
     }},
    {"ReadBlocks",
     [](TestVolume& v) -> Result<void> {
         return expect_same(TRY(v.read("/d/blocks")) == test_content(2, 30 * kBlock));
     }},
    {"ReadFragments", [](TestVolume& v) { return no_value(v.read("/d/fragments")); }},
    {"ReadMapped", read_through_a_mapping},
    {"ReadLink",
     [](TestVolume& v) -> Result<void> {
         unsigned char target[vfs::kSymlinkMaxBytes];
         return no_value(v.file_system().read_link(TRY(v.find("/symlink")),
                                                   MutableByteSpan(target, sizeof target)));
     }},
    {"SeekData",
     [](TestVolume& v) -> Result<void> {
         return no_value(
             v.file_system().seek(TRY(v.find("/d/fragments")), 5 * kBlock, vfs::SeekTarget::data));
     }},
    {"Statistics", [](TestVolume& v) { return no_value(v.file_system().statistics()); }},
    {"Describe",
     [](TestVolume& v) -> Result<void> {
         TextSink sink;
         TRY(v.file_system().describe(sink));
         return expect_same(sink.bytes > 100);
     }},
    {"Create", [](TestVolume& v) { return v.create("/many/new"); }},
    {"CreateWithInheritedAcl", [](TestVolume& v) { return v.create("/with-acl/new"); }},
    {"CreateDevice", [](TestVolume& v) { return v.create("/node", vfs::mode::block_device); }},
    {"MakeDirectory", [](TestVolume& v) { return v.make_directory("/with-acl/new"); }},
    {"MakeSymlink", [](TestVolume& v) { return v.make_symlink("/new", std::string(3000, 't')); }},
    {"NameATemporaryFile", name_a_temporary_file, true},
    {"Link", [](TestVolume& v) { return v.link("/d/inline", "/many/link"); }},
    {"Unlink", [](TestVolume& v) { return v.unlink("/many/file-3"); }},
    {"UnlinkLarge", [](TestVolume& v) { return v.unlink("/d/fragments"); }},
    {"RemoveDirectory", [](TestVolume& v) { return v.remove_directory("/empty"); }},
    {"Rename", [](TestVolume& v) { return v.rename("/many/file-4", "/d/moved"); }},
    {"RenameDirectory", [](TestVolume& v) { return v.rename("/d", "/with-acl/d"); }},
    {"RenameOverAFile", [](TestVolume& v) { return v.rename("/many/file-5", "/d/blocks"); }},
    {"Exchange",
     [](TestVolume& v) { return v.rename("/d/blocks", "/with-acl", vfs::rename_flag::exchange); }},
    {"WriteInline", [](TestVolume& v) { return v.write("/d/inline", 100, "some"); }},
    {"WriteOutOfTheInode",
     [](TestVolume& v) { return v.write("/d/inline", 600, test_content(5, 3000)); }},
    {"WriteAtTheEnd",
     [](TestVolume& v) { return v.write("/d/blocks", 30 * kBlock, test_content(6, 70 * kBlock)); },
     true},
    {"WriteOverFragments",
     [](TestVolume& v) { return v.write("/d/fragments", 777, test_content(7, 50 * kBlock)); },
     true},
    {"WriteIntoReserved",
     [](TestVolume& v) { return v.write("/d/reserved", 5 * kBlock, test_content(8, kBlock)); }},
    {"WriteThroughAGrant", [](TestVolume& v) { return write_through_a_grant(v, true); }},
    {"AbortAGrant", [](TestVolume& v) { return write_through_a_grant(v, false); }},
    {"Reserve",
     [](TestVolume& v) -> Result<void> {
         return v.file_system().reserve(TRY(v.find("/d/blocks")), 0, 40 * kBlock);
     }},
    {"CopyRange",
     [](TestVolume& v) -> Result<void> {
         return no_value(v.file_system().copy_range(TRY(v.find("/d/blocks")), 100,
                                                    TRY(v.find("/many/file-6")), 10, 50000));
     },
     true},
    {"TruncateToABlock", [](TestVolume& v) { return v.truncate("/d/fragments", 4 * kBlock + 9); }},
    {"TruncateToNothing", [](TestVolume& v) { return v.truncate("/d/blocks", 0); }},
    {"TruncateUp", [](TestVolume& v) { return v.truncate("/d/inline", 100 * kBlock); }},
    {"Allocate", [](TestVolume& v) { return v.allocate("/d/fragments", 0, 0, 120 * kBlock); },
     true},
    {"Punch",
     [](TestVolume& v) { return v.allocate("/d/fragments", kPunch, 3 * kBlock + 5, 30 * kBlock); },
     true},
    {"ZeroRange",
     [](TestVolume& v) {
         return v.allocate("/d/blocks", vfs::allocate_flag::zero_range, kBlock + 5, 9 * kBlock);
     },
     true},
    {"CollapseRange",
     [](TestVolume& v) {
         return v.allocate("/d/fragments", vfs::allocate_flag::collapse_range, 8 * kBlock,
                           4 * kBlock);
     },
     true},
    {"InsertRange",
     [](TestVolume& v) {
         return v.allocate("/d/fragments", vfs::allocate_flag::insert_range, 8 * kBlock,
                           4 * kBlock);
     },
     true},
    {"SetXattr",
     [](TestVolume& v) { return v.set_xattr("/d", "user.new", test_content(9, 6000)); }},
    {"ReplaceXattr", [](TestVolume& v) { return v.set_xattr("/d/inline", "user.big", "less"); }},
    {"RemoveXattr", [](TestVolume& v) { return v.remove_xattr("/d/inline", "user.big"); }},
    {"GetXattr",
     [](TestVolume& v) -> Result<void> {
         std::string value(5000, '\0');
         return no_value(v.file_system().get_xattr(
             TRY(v.find("/d/inline")), "user.big",
             MutableByteSpan(reinterpret_cast<unsigned char*>(value.data()), value.size())));
     }},
    {"ListXattr",
     [](TestVolume& v) -> Result<void> {
         return no_value(v.file_system().list_xattr(TRY(v.find("/d/inline")), {}));
     }},
    {"ChangeModeWithAcl",
     [](TestVolume& v) { return change(v, "/with-acl/file", vfs::AttributeChange::mode_bit); }},
    {"ChangeOwner",
     [](TestVolume& v) { return change(v, "/d/inline", vfs::AttributeChange::user_id_bit); }},
    {"SetFlags",
     [](TestVolume& v) -> Result<void> {
         return v.file_system().set_flags({}, TRY(v.find("/d/inline")), vfs::file_flag::no_dump);
     }},
    {"Fsync",
     [](TestVolume& v) -> Result<void> {
         TRY(v.write("/d/inline", 0, "x"));
         return v.fsync("/d/inline");
     }},
    {"Sync",
     [](TestVolume& v) -> Result<void> {
         TRY(v.write("/d/inline", 0, "x"));
         return v.sync();
     }},
    {"Checkpoint", change_and_checkpoint},
    {"RemountReadOnlyAndBack",
     [](TestVolume& v) -> Result<void> {
         TRY(v.write("/d/inline", 0, "x"));
         TRY(v.file_system().remount(true));
         return v.file_system().remount(false);
     }},
    {"Scrub", scrub},
    {"Trim", [](TestVolume& v) { return no_value(v.file_system().trim(0, kDeviceBytes, kBlock)); }},
};

// ---- The volume ---------------------------------------------------------------------------------

// One of everything; the last changes are in the journal only.
void fill(TestVolume& volume) {
    MUST(volume.make());
    MUST(volume.mount());
    MUST(volume.make_directory("/d"));
    MUST(volume.write("/d/inline", 0, test_content(1, 700)));
    MUST(volume.set_xattr("/d/inline", "user.big", test_content(3, 5000)));
    MUST(volume.write("/d/blocks", 0, test_content(2, 30 * kBlock)));
    for (uint64_t i = 0; i < 60; ++i) {
        MUST(volume.write("/d/fragments", 2 * i * kBlock, test_content(i, kBlock)));
    }
    MUST(volume.write("/d/reserved", 0, "r"));
    MUST(volume.allocate("/d/reserved", 0, 0, 20 * kBlock));
    MUST(volume.make_directory("/empty"));
    MUST(volume.make_symlink("/symlink", std::string(2500, 's')));
    MUST(volume.make_directory("/with-acl"));
    MUST(volume.set_xattr("/with-acl", "system.posix_acl_default", acl_text()));
    MUST(volume.create("/with-acl/file", vfs::mode::regular | 0666));
    MUST(volume.make_directory("/many"));
    for (int i = 0; i < 40; ++i) {
        MUST(volume.write("/many/file-" + std::to_string(i), 0, test_content(i, 600)));
    }
    MUST(volume.unmount());
    MUST(volume.mount());
    for (int i = 20; i < 30; ++i) {
        MUST(volume.write("/many/file-" + std::to_string(i), 0, test_content(i + 1, 2 * kBlock)));
    }
    MUST(volume.unlink("/many/file-30"));
    MUST(volume.sync());
    volume.abandon();
}

// The image, and a device with a copy of it.
class Image {
  public:
    Image() : image_(kDeviceBytes) {
        fuse::CapturedLog log;
        CrashDevice device(kDeviceBytes);
        geometry_ = device.geometry();
        TestVolume volume(device);
        fill(volume);
        image_ = device.crash_image(CrashOutcome::keep_completed, 1);
    }
    std::unique_ptr<CrashDevice> device() {
        return std::make_unique<CrashDevice>(image_.copy(), geometry_);
    }

  private:
    vfs::DeviceGeometry geometry_;
    SparseImage image_;
};

Image& image() {
    static Image made;
    return made;
}

// Times differ between runs, and nothing here depends on them.
SeenTree see(TestVolume& volume) {
    Result<SeenTree> seen = volume.see();
    EXPECT_TRUE(seen.ok());
    return seen.ok() ? seen.release_value() : SeenTree();
}

// What the volume holds after unmounting it: `expected`, without a finding.
void expect_on_device(CrashDevice& device, const SeenTree& expected) {
    EXPECT_EQ(findings_of(device), "");
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    EXPECT_EQ(difference(expected, see(volume)), "");
    EXPECT_TRUE(volume.unmount().ok());
}

// ---- One operation --------------------------------------------------------------------------------

class AllocationFailure : public testing::TestWithParam<Operation> {
  protected:
    struct States {
        SeenTree before;
        SeenTree after;
    };

    // Without a failure.
    States reference() {
        auto device = image().device();
        TestVolume volume(*device);
        MUST(volume.mount());
        States states;
        states.before = see(volume);
        const Result<void> done = GetParam().run(volume);
        EXPECT_TRUE(done.ok()) << errno_value(done.error());
        states.after = see(volume);
        EXPECT_TRUE(volume.unmount().ok());
        return states;
    }

    // The operation has answered enomem.
    void try_again(TestVolume& volume, const States& states) {
        SeenTree now = see(volume);
        const bool nothing_happened = difference(states.before, now).empty();
        const bool all_happened = difference(states.after, now).empty();
        EXPECT_TRUE(nothing_happened || all_happened || GetParam().may_end_halfway)
            << difference(states.before, now);
        if (nothing_happened) {
            const Result<void> again = GetParam().run(volume);
            EXPECT_TRUE(again.ok()) << errno_value(again.error());
            now = see(volume);
            EXPECT_EQ(difference(states.after, now), "");
        }
    }

    // Returns false when the operation made fewer allocations than `number`.
    bool run_with_failure(uint64_t number, const States& states) {
        auto device = image().device();
        bool met = false;
        SeenTree expected;
        {
            fuse::AllocationWatch watch;
            TestVolume volume(*device);
            MUST(volume.mount());
            watch.fail_allocation(number);
            const Result<void> done = GetParam().run(volume);
            met = watch.failed_allocations() != 0;
            watch.stop_failing();
            if (done.ok()) {
                EXPECT_EQ(difference(states.after, see(volume)), "");
            } else {
                EXPECT_TRUE(met);
                EXPECT_EQ(done.error(), Error::enomem) << errno_value(done.error());
                try_again(volume, states);
            }
            expected = see(volume);
            EXPECT_TRUE(volume.file_system().remount(false).ok());
            EXPECT_TRUE(volume.write("/works", 0, "still").ok());
            EXPECT_TRUE(volume.unlink("/works").ok());
            expected["/"] = see(volume)["/"];
            EXPECT_TRUE(volume.unmount().ok());
            EXPECT_EQ(watch.live_bytes(), 0);
            EXPECT_EQ(watch.live_allocations(), 0);
        }
        expect_on_device(*device, expected);
        return met;
    }

    fuse::CapturedLog log_;
};

TEST_P(AllocationFailure, ChangesNothingAndIsMadeUpFor) {
    const States states = reference();
    const uint64_t stride = test_size(1, 5);
    uint64_t number = 1;
    while (number < kMaximumAllocations && !HasFailure()) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        if (!run_with_failure(number, states)) {
            break;
        }
        number += stride;
    }
    EXPECT_LT(number, kMaximumAllocations);
    RecordProperty("allocations", static_cast<int>(number - 1));
}

INSTANTIATE_TEST_SUITE_P(Operations, AllocationFailure, testing::ValuesIn(kOperations),
                         [](const testing::TestParamInfo<Operation>& operation) {
                             return std::string(operation.param.name);
                         });

// ---- The life of a mount --------------------------------------------------------------------------

class LifeAllocationFailure : public testing::Test {
  protected:
    // Calls run(number) for the first, second... allocation until it says that there was no such one.
    template <typename Function>
    void for_each_allocation(Function run) {
        const uint64_t stride = test_size(1, 5);
        uint64_t number = 1;
        while (number < kMaximumAllocations && !HasFailure()) {
            SCOPED_TRACE("allocation " + std::to_string(number));
            if (!run(number)) {
                break;
            }
            number += stride;
        }
        EXPECT_GT(number, 1U);
        EXPECT_LT(number, kMaximumAllocations);
    }

    SeenTree seen_after_recovery() {
        auto device = image().device();
        TestVolume volume(*device);
        MUST(volume.mount());
        return see(volume);
    }

    fuse::CapturedLog log_;
};

TEST_F(LifeAllocationFailure, OfMountingWithRecovery) {
    const SeenTree expected = seen_after_recovery();
    for (const bool read_only : {false, true}) {
        for_each_allocation([&](uint64_t number) {
            auto device = image().device();
            tiffinfs::MountOptions options = TestVolume::quiet_options();
            options.volume.read_only = read_only;
            bool met = false;
            {
                fuse::AllocationWatch watch;
                TestVolume volume(*device);
                watch.fail_allocation(number);
                Result<void> mounted = volume.mount(options);
                met = watch.failed_allocations() != 0;
                watch.stop_failing();
                if (!mounted.ok()) {
                    EXPECT_EQ(mounted.error(), Error::enomem) << errno_value(mounted.error());
                    EXPECT_EQ(watch.live_bytes(), 0);
                    mounted = volume.mount(options);
                }
                EXPECT_TRUE(mounted.ok());
                EXPECT_EQ(difference(expected, see(volume)), "");
                EXPECT_TRUE(volume.unmount().ok());
                EXPECT_EQ(watch.live_bytes(), 0);
            }
            expect_on_device(*device, expected);
            return met;
        });
    }
}

// What was completed must not be lost because the last checkpoint gets no memory.
TEST_F(LifeAllocationFailure, OfUnmounting) {
    for_each_allocation([&](uint64_t number) {
        auto device = image().device();
        bool met = false;
        SeenTree expected;
        {
            fuse::AllocationWatch watch;
            TestVolume volume(*device);
            MUST(volume.mount());
            MUST(volume.write("/d/blocks", 7, test_content(11, 3 * kBlock)));
            MUST(volume.write("/late", 0, test_content(12, 500)));
            MUST(volume.unlink("/d/fragments"));
            MUST(volume.make_temporary("without a name"));
            expected = see(volume);
            watch.fail_allocation(number);
            const Result<void> unmounted = volume.unmount();
            met = watch.failed_allocations() != 0;
            watch.stop_failing();
            EXPECT_TRUE(unmounted.ok() || unmounted.error() == Error::enomem)
                << errno_value(unmounted.error());
            EXPECT_EQ(watch.live_bytes(), 0);
        }
        expect_on_device(*device, expected);
        return met;
    });
}

TEST_F(LifeAllocationFailure, OfUnmountingWithoutAnyMemory) {
    auto device = image().device();
    SeenTree expected;
    {
        fuse::AllocationWatch watch;
        TestVolume volume(*device);
        MUST(volume.mount());
        MUST(volume.write("/late", 0, test_content(12, 500)));
        expected = see(volume);
        watch.fail_allocations_from(1);
        const Result<void> unmounted = volume.unmount();
        watch.stop_failing();
        EXPECT_TRUE(unmounted.ok()) << errno_value(unmounted.error());
        EXPECT_EQ(watch.live_bytes(), 0);
    }
    expect_on_device(*device, expected);
}

TEST_F(LifeAllocationFailure, OfMakingAFileSystem) {
    for_each_allocation([&](uint64_t number) {
        CrashDevice device(kDeviceBytes);
        TestVolume volume(device);
        fuse::AllocationWatch watch;
        watch.fail_allocation(number);
        const Result<void> made = volume.make();
        const bool met = watch.failed_allocations() != 0;
        watch.stop_failing();
        EXPECT_EQ(watch.live_bytes(), 0);
        if (!made.ok()) {
            EXPECT_EQ(made.error(), Error::enomem) << errno_value(made.error());
            EXPECT_TRUE(volume.make().ok());
        }
        EXPECT_EQ(findings_of(device), "");
        return met;
    });
}

// From some allocation on none succeeds, for a while.
TEST_F(LifeAllocationFailure, OfEverythingForAWhile) {
    const uint64_t stride = test_size(3, 17);
    for (uint64_t number = 1; number < 60 && !HasFailure(); number += stride) {
        SCOPED_TRACE("from allocation " + std::to_string(number));
        auto device = image().device();
        SeenTree expected;
        {
            fuse::AllocationWatch watch;
            TestVolume volume(*device);
            MUST(volume.mount());
            watch.fail_allocations_from(number);
            for (const Operation& operation : kOperations) {
                const Result<void> done = operation.run(volume);
                // Others may be in the way: what was removed or moved before is gone.
                EXPECT_TRUE(done.ok() || done.error() == Error::enomem ||
                            done.error() == Error::enoent || done.error() == Error::eexist ||
                            done.error() == Error::enodata || done.error() == Error::einval ||
                            done.error() == kWrong || done.error() == Error::erofs)
                    << operation.name << ": " << errno_value(done.error());
            }
            EXPECT_GT(watch.failed_allocations(), 0U);
            watch.stop_failing();
            EXPECT_TRUE(volume.file_system().remount(false).ok());
            EXPECT_TRUE(volume.write("/works", 0, "again").ok());
            expected = see(volume);
            EXPECT_TRUE(volume.unmount().ok());
            EXPECT_EQ(watch.live_bytes(), 0);
        }
        expect_on_device(*device, expected);
    }
}

}  // namespace
}  // namespace tiffin::test
