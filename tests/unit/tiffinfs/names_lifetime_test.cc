// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Objects, references, and nodes without links: how long things live.
#include <set>
#include <sstream>

#include "fuse/host/status_text.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

// The number behind "key: " in what the file system says of itself.
uint64_t described(TiffinFileSystem& fs, const std::string& key) {
    fuse::TextSink sink;
    EXPECT_TRUE(fs.describe(sink).ok());
    const size_t at = sink.text.find("\n" + key + ": ");
    EXPECT_NE(at, std::string::npos) << key;
    return at == std::string::npos ? 0 : std::stoull(sink.text.substr(at + key.size() + 3));
}

int64_t write_text(TiffinFileSystem& fs, uint64_t node, std::string text) {
    vfs::IoVector buffer{text.data(), text.size()};
    Result<size_t> written = fs.write(node, 0, 0, Span<const vfs::IoVector>(&buffer, 1), 0);
    return written.ok() ? static_cast<int64_t>(written.value()) : -code(written);
}

TEST(LinkCount, IsMarkedWhenANameWasLostAndOthersAreLeft) {
    const auto is_marked = [](const vfs::Attributes& attributes) {
        return (attributes.traits & vfs::attribute_trait::name_lost) != 0;
    };
    NamesVolume volume;
    TiffinFileSystem& fs = volume.fs();
    const uint64_t unlinked = volume.create(vfs::kRootNode, "unlinked");
    const uint64_t replaced = volume.create(vfs::kRootNode, "replaced");
    const uint64_t exchanged = volume.create(vfs::kRootNode, "exchanged");
    for (const uint64_t node : {unlinked, replaced, exchanged}) {
        const std::string name = "other" + std::to_string(node);
        Result<vfs::Attributes> linked =
            fs.link({}, node, vfs::kRootNode, vfs::Name(name.data(), name.size()));
        ASSERT_TRUE(linked.ok());
        EXPECT_FALSE(is_marked(linked.value()));
    }
    ASSERT_TRUE(fs.unlink({}, vfs::kRootNode, vfs::Name("unlinked")).ok());
    volume.create(vfs::kRootNode, "source");
    ASSERT_TRUE(
        fs.rename({}, vfs::kRootNode, vfs::Name("source"), vfs::kRootNode, vfs::Name("replaced"), 0)
            .ok());
    volume.create(vfs::kRootNode, "source");
    ASSERT_TRUE(fs.rename({}, vfs::kRootNode, vfs::Name("source"), vfs::kRootNode,
                          vfs::Name("exchanged"), vfs::rename_flag::exchange)
                    .ok());
    EXPECT_TRUE(is_marked(volume.attributes(unlinked)));
    EXPECT_EQ(volume.attributes(unlinked).link_count, 1U);
    EXPECT_TRUE(is_marked(volume.attributes(replaced)));
    EXPECT_FALSE(is_marked(volume.attributes(exchanged)));
}

TEST(Objects, AreEvictedBeyondTheLimit) {
    MountOptions options = NamesVolume::quiet_options();
    options.maximum_objects = 128;
    NamesVolume volume(options);
    constexpr uint64_t kFiles = 3000;
    std::vector<uint64_t> nodes;
    for (uint64_t i = 0; i < kFiles; ++i) {
        nodes.push_back(volume.create(vfs::kRootNode, "file" + std::to_string(i)));
    }
    EXPECT_EQ(described(volume.fs(), "nodes referenced"), kFiles);
    // References keep no object in memory.
    EXPECT_LT(described(volume.fs(), "objects in memory"), 1000U);
    for (uint64_t i = 0; i < kFiles; ++i) {
        EXPECT_EQ(volume.attributes(nodes[i]).node, nodes[i]);
        volume.fs().forget(nodes[i], 1);
    }
    EXPECT_EQ(described(volume.fs(), "nodes referenced"), 0U);
    EXPECT_LT(described(volume.fs(), "objects in memory"), 1000U);
    EXPECT_EQ(volume.check(), "");
}

// What a processor keeps pinned goes all the same when others come.
TEST(Objects, AreEvictedAlsoWhenTheyAreKeptAtHand) {
    constexpr uint64_t kFiles = 4000;
    constexpr int kTimes = 3;  // more than it takes to be kept
    MountOptions options = NamesVolume::quiet_options();
    options.maximum_objects = 64;
    NamesVolume volume(options);
    for (uint64_t i = 0; i < kFiles; ++i) {
        const uint64_t node = volume.create(vfs::kRootNode, "file" + std::to_string(i));
        for (int time = 0; time < kTimes; ++time) {
            EXPECT_EQ(volume.attributes(node).node, node);
        }
        volume.fs().forget(node, 1);
    }
    EXPECT_LT(described(volume.fs(), "objects in memory"), 1000U);
    // Deleted while it is kept: gone for whoever comes next.
    const uint64_t last = volume.lookup(vfs::kRootNode, "file0");
    for (int time = 0; time < kTimes; ++time) {
        EXPECT_EQ(volume.attributes(last).node, last);
    }
    ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, "file0").ok());
    EXPECT_EQ(volume.attributes(last).link_count, 0U);
    volume.fs().forget(last, 1);
    EXPECT_EQ(volume.check(), "");
}

TEST(Orphans, AreSoundWhileTheyAreTakenApart) {
    NamesVolume volume;
    const std::string target(3000, 't');
    Result<vfs::Attributes> link =
        volume.fs().make_symlink({}, vfs::kRootNode, "link", name_of(target), {});
    ASSERT_TRUE(link.ok());
    const uint64_t file = volume.create(vfs::kRootNode, "file");
    // One chunk more than a transaction erases.
    const std::vector<unsigned char> value(vfs::kXattrValueMaxBytes, 'v');
    ASSERT_TRUE(
        volume.fs().set_xattr({}, file, "user.a", ByteSpan(value.data(), value.size()), 0).ok());
    for (const char* name : {"link", "file"}) {
        ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, name_of(name)).ok());
    }
    // The references keep the reclaim thread away.
    for (const uint64_t node : {link->node, file}) {
        ObjectPin object = MUST(volume.fs().objects().get(node));
        BiasedExclusiveLock lock(object->state, node);
        EXPECT_EQ(MUST(volume.fs().free_some_data(*object)), node == link->node);
    }
    ASSERT_TRUE(volume.fs().sync(true).ok());
    EXPECT_TRUE(check::check_file_system(volume.volume().device(), {}).clean());
    volume.crash();
    EXPECT_EQ(volume.check(), "");
}

TEST(References, AreListedAsLongAsTheyAre) {
    struct Listed final : vfs::NodeSink {
        void add(Span<const vfs::NodeId> some) override { nodes.insert(some.begin(), some.end()); }
        std::set<uint64_t> nodes;
    };
    NamesVolume volume;
    std::set<uint64_t> expected;
    for (int i = 0; i < 500; ++i) {
        expected.insert(volume.create(vfs::kRootNode, "file" + std::to_string(i)));
    }
    for (int i = 0; i < 250; ++i) {
        volume.fs().forget(*expected.begin(), 1);
        expected.erase(expected.begin());
    }
    ASSERT_TRUE(volume.fs().shutdown(vfs::ShutdownMode::discard).ok());
    Listed listed;
    ASSERT_TRUE(volume.fs().list_references(listed).ok());
    EXPECT_EQ(listed.nodes, expected);
}

TEST(Orphans, LiveAsLongAsTheirReferences) {
    NamesVolume volume;
    const uint64_t node = volume.create(vfs::kRootNode, "file");
    ASSERT_EQ(write_text(volume.fs(), node, std::string(100'000, 'x')), 100'000);
    ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, "file").ok());
    EXPECT_EQ(volume.attributes(node).link_count, 0U);
    EXPECT_TRUE(volume.exists(make_key(kVolumeNode, Kind::orphan, node)));
    EXPECT_EQ(write_text(volume.fs(), node, "still here"), 10);
    // A reference by identity is as good as any.
    EXPECT_TRUE(volume.fs().find_node(node, 0).ok());
    volume.fs().forget(node, 1);
    EXPECT_EQ(volume.attributes(node).link_count, 0U);
    volume.fs().forget(node, 1);
    EXPECT_EQ(code(volume.fs().find_node(node, 0)), code(Error::estale));
    EXPECT_EQ(volume.check(), "");
    volume.mount();
    EXPECT_FALSE(volume.exists(make_key(node, Kind::inode, 0)));
    EXPECT_FALSE(volume.exists(make_key(kVolumeNode, Kind::orphan, node)));
}

TEST(Orphans, AreGoneAfterUnmountWhoeverHeldThem) {
    NamesVolume volume;
    const uint64_t nodes_before = volume.volume().node_count();
    for (int i = 0; i < 100; ++i) {
        const std::string name = "file" + std::to_string(i);
        const uint64_t node = volume.create(vfs::kRootNode, name);
        ASSERT_EQ(write_text(volume.fs(), node, std::string(5000, 'x')), 5000);
        ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, name_of(name)).ok());
        ASSERT_TRUE(volume.fs().make_temporary({}, vfs::kRootNode, 0600, {}).ok());
    }
    EXPECT_EQ(volume.check(), "");
    volume.mount();
    EXPECT_EQ(volume.volume().node_count(), nodes_before);
}

TEST(Orphans, AreFoundAfterACrash) {
    NamesVolume volume;
    const uint64_t nodes_before = volume.volume().node_count();
    for (int i = 0; i < 100; ++i) {
        const std::string name = "file" + std::to_string(i);
        const uint64_t node = volume.create(vfs::kRootNode, name);
        ASSERT_EQ(write_text(volume.fs(), node, std::string(5000, 'x')), 5000);
        ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, name_of(name)).ok());
    }
    volume.crash();
    EXPECT_EQ(volume.check(), "");
    volume.mount();
    EXPECT_EQ(volume.volume().node_count(), nodes_before);
}

TEST(Orphans, AReadOnlyMountLeavesThemAlone) {
    NamesVolume volume;
    const uint64_t node = volume.create(vfs::kRootNode, "file");
    ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, "file").ok());
    ASSERT_TRUE(volume.fs().remount(true).ok());
    volume.fs().forget(node, 1);
    EXPECT_TRUE(volume.exists(make_key(kVolumeNode, Kind::orphan, node)));
    EXPECT_EQ(code(volume.fs().unlink({}, vfs::kRootNode, "file")), code(Error::erofs));
    ASSERT_TRUE(volume.fs().remount(false).ok());
    EXPECT_EQ(volume.check(), "");
    volume.mount();
    EXPECT_FALSE(volume.exists(make_key(node, Kind::inode, 0)));
}

TEST(Orphans, MoreThanTheQueueHoldsAreDeletedToo) {
    NamesVolume volume;
    const uint64_t nodes_before = volume.volume().node_count();
    constexpr int kFiles = 20'000;
    std::vector<uint64_t> nodes;
    for (int i = 0; i < kFiles; ++i) {
        Result<vfs::Attributes> made = volume.fs().make_temporary({}, vfs::kRootNode, 0600, {});
        ASSERT_TRUE(made.ok());
        nodes.push_back(made->node);
    }
    // Read-only, so that nothing leaves the queue meanwhile.
    ASSERT_TRUE(volume.fs().remount(true).ok());
    for (uint64_t node : nodes) {
        volume.fs().forget(node, 1);
    }
    const uint64_t waiting = described(volume.fs(), "nodes waiting for deletion");
    EXPECT_GT(waiting, 0U);
    EXPECT_LT(waiting, uint64_t{kFiles});
    ASSERT_TRUE(volume.fs().remount(false).ok());
    EXPECT_EQ(volume.check(), "");
    volume.mount();
    EXPECT_EQ(volume.volume().node_count(), nodes_before);
}

TEST(TemporaryFiles, GetTheirFirstNameByLink) {
    NamesVolume volume;
    Result<vfs::Attributes> made = volume.fs().make_temporary({}, vfs::kRootNode, 0600, {});
    ASSERT_TRUE(made.ok());
    const uint64_t node = made->node;
    EXPECT_EQ(made->link_count, 0U);
    Result<vfs::Attributes> linked = volume.fs().link({}, node, vfs::kRootNode, "named");
    ASSERT_TRUE(linked.ok());
    EXPECT_EQ(linked->link_count, 1U);
    EXPECT_FALSE(volume.exists(make_key(kVolumeNode, Kind::orphan, node)));
    volume.fs().forget(node, 2);
    EXPECT_EQ(volume.lookup(vfs::kRootNode, "named"), node);
    // Once it has lost its last name, it gets no other one.
    ASSERT_TRUE(volume.fs().unlink({}, vfs::kRootNode, "named").ok());
    EXPECT_EQ(code(volume.fs().link({}, node, vfs::kRootNode, "again")), code(Error::enoent));
    EXPECT_EQ(volume.check(), "");
}

TEST(Identity, NeedsTheGeneration) {
    NamesVolume volume;
    const uint64_t node = volume.create(vfs::kRootNode, "file");
    const uint64_t generation = volume.attributes(node).generation;
    EXPECT_TRUE(volume.fs().find_node(node, generation).ok());
    EXPECT_EQ(code(volume.fs().find_node(node, generation + 1)), code(Error::estale));
    EXPECT_EQ(code(volume.fs().find_node(node + 1, 0)), code(Error::estale));
    EXPECT_EQ(code(volume.fs().find_node(0, 0)), code(Error::estale));
    EXPECT_EQ(code(volume.fs().get_attributes(~uint64_t{0})), code(Error::estale));
}

TEST(RemovedDirectories, AreEmptyAndTakeNothing) {
    NamesVolume volume;
    const uint64_t parent = volume.make_directory(vfs::kRootNode, "parent");
    const uint64_t node = volume.make_directory(parent, "child");
    ASSERT_TRUE(volume.fs().remove_directory({}, parent, "child").ok());
    ASSERT_TRUE(volume.fs().remove_directory({}, vfs::kRootNode, "parent").ok());
    volume.fs().forget(parent, 1);
    EXPECT_EQ(volume.lookup_error(node, "name"), code(Error::enoent));
    EXPECT_EQ(volume.lookup_error(node, ".."), code(Error::enoent));
    EXPECT_EQ(code(volume.fs().create({}, node, "name", 0644, 0, 0, {})), code(Error::enoent));
    EXPECT_EQ(code(volume.fs().make_temporary({}, node, 0644, {})), code(Error::enoent));
    EXPECT_TRUE(volume.list(node).empty());
    EXPECT_EQ(volume.attributes(node).link_count, 0U);
    EXPECT_EQ(volume.check(), "");
}

TEST(ReadDirectory, GivesReferencesForWhatIsTaken) {
    NamesVolume volume;
    for (int i = 0; i < 100; ++i) {
        volume.fs().forget(volume.create(vfs::kRootNode, "file" + std::to_string(i)), 1);
    }
    EXPECT_EQ(described(volume.fs(), "nodes referenced"), 0U);
    NameList some(40);
    ASSERT_TRUE(volume.fs().read_directory(vfs::kRootNode, 0, 0, true, some).ok());
    EXPECT_EQ(some.names.size(), 40U);
    EXPECT_EQ(described(volume.fs(), "nodes referenced"), 38U);  // "." and ".." count not
    NameList rest;
    ASSERT_TRUE(volume.fs().read_directory(vfs::kRootNode, 0, some.last_cookie, true, rest).ok());
    EXPECT_EQ(rest.names.size(), 62U);
    EXPECT_EQ(described(volume.fs(), "nodes referenced"), 100U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
