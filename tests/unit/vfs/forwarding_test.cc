// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a file system that forwards everything behaves as the one below, and no operation of the contract is forgotten.
// Method: the two headers are compared; a tiffinfs is used through the forwarding class.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "fs/vfs/forwarding_file_system.h"
#include "fuse/host/memory_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::vfs {
namespace {

// The names of all functions that are declared with `mark` in front or behind, in the header at `path`.
std::set<std::string> names_in(const std::string& path, const std::regex& declaration) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    const std::string content = text.str();
    std::set<std::string> names;
    for (auto found = std::sregex_iterator(content.begin(), content.end(), declaration);
         found != std::sregex_iterator(); ++found) {
        names.insert((*found)[1]);
    }
    return names;
}

// Tests run in the repository's root.
TEST(Forwarding, HasEveryOperation) {
    const std::set<std::string> operations =
        names_in("fs/vfs/file_system.h", std::regex(R"(virtual [^;(~]*\b(\w+)\()"));
    const std::set<std::string> forwarded =
        names_in("fs/vfs/forwarding_file_system.h", std::regex(R"(below_\.(\w+)\()"));
    EXPECT_GT(operations.size(), 40U);
    EXPECT_EQ(operations, forwarded);
}

class Uppercase final : public ForwardingFileSystem {
  public:
    using ForwardingFileSystem::ForwardingFileSystem;

    // An archive or a filter: content of its own, so no device.
    BlockDevice* device() override { return nullptr; }
    Result<size_t> read(NodeId node, Handle handle, uint64_t offset_bytes,
                        Span<const IoVector> buffers) override {
        const size_t length = TRY(below().read(node, handle, offset_bytes, buffers));
        for (size_t i = 0; i < length; ++i) {
            char& letter = static_cast<char*>(buffers[0].data)[i];
            letter = static_cast<char>(std::toupper(letter));
        }
        return length;
    }
};

TEST(Forwarding, ChangesWhatIsOverridden) {
    auto device = fuse::MemoryDevice::create(64U << 20);
    ASSERT_TRUE(device.ok());
    test::TestVolume volume(*device.value());
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    Uppercase above(volume.file_system());
    const Result<Attributes> made = above.create({}, kRootNode, "f", 0644, 0, 0, {});
    ASSERT_TRUE(made.ok());
    std::string text = "written below";
    IoVector buffer{text.data(), text.size()};
    ASSERT_EQ(above.write(made.value().node, 0, 0, Span<const IoVector>(&buffer, 1), 0).value_or(0),
              text.size());
    ASSERT_EQ(above.read(made.value().node, 0, 0, Span<const IoVector>(&buffer, 1)).value_or(0),
              text.size());
    EXPECT_EQ(text, "WRITTEN BELOW");
    EXPECT_EQ(above.get_attributes(made.value().node).value().size_bytes, text.size());
    EXPECT_TRUE(above.unlink({}, kRootNode, "f").ok());
    EXPECT_EQ(volume.file_system().lookup(kRootNode, "f").error(), Error::enoent);
}

}  // namespace
}  // namespace tiffin::vfs
