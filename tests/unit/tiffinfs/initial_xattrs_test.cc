// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a node is made with its extended attributes or not at all, also when power fails.
// Method: nodes of each type with attributes, what the contract refuses, and a crash right after.
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using vfs::kRootNode;

ByteSpan bytes_of(const std::string& text) {
    return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

std::string xattr_of(TiffinFileSystem& fs, uint64_t node, const std::string& name) {
    std::string value(8192, '\0');
    const Result<size_t> size = fs.get_xattr(
        node, name_of(name), {reinterpret_cast<unsigned char*>(value.data()), value.size()});
    return size.ok() ? value.substr(0, size.value())
                     : "error " + std::to_string(errno_value(size.error()));
}

class InitialXattrs : public ::testing::Test {
  protected:
    using Xattrs = std::vector<std::pair<std::string, std::string>>;

    Result<vfs::Attributes> create(const std::string& name, const Xattrs& wanted,
                                   uint32_t mode = vfs::mode::regular | 0644) {
        std::vector<vfs::InitialXattr> xattrs;
        for (const auto& [key, value] : wanted) {
            xattrs.push_back({name_of(key), bytes_of(value)});
        }
        const Span<const vfs::InitialXattr> span(xattrs.data(), xattrs.size());
        const vfs::Name its_name = name_of(name);
        switch (mode & vfs::mode::type_mask) {
            case vfs::mode::directory:
                return fs().make_directory({}, kRootNode, its_name, 0755, span);
            case vfs::mode::symlink:
                return fs().make_symlink({}, kRootNode, its_name, "target", span);
            default:
                return name.empty() ? fs().make_temporary({}, kRootNode, 0644, span)
                                    : fs().create({}, kRootNode, its_name, mode, 1, 2, span);
        }
    }
    TiffinFileSystem& fs() { return volume_.fs(); }

    NamesVolume volume_;
};

TEST_F(InitialXattrs, AreThereOnNodesOfEachType) {
    const Xattrs label{{"security.label", "a label"}};
    const uint32_t types[] = {vfs::mode::regular, vfs::mode::directory, vfs::mode::symlink,
                              vfs::mode::fifo, vfs::mode::character_device};
    for (const uint32_t type : types) {
        const std::string name = "node" + std::to_string(type);
        const Result<vfs::Attributes> made = create(name, label, type | 0644);
        ASSERT_EQ(code(made), 0) << type;
        EXPECT_EQ(made.value().traits & ~vfs::attribute_trait::inline_content,
                  vfs::attribute_trait::xattrs);
        EXPECT_EQ(xattr_of(fs(), made.value().node, "security.label"), "a label");
    }
    const Result<vfs::Attributes> temporary = create("", label);
    ASSERT_EQ(code(temporary), 0);
    EXPECT_EQ(xattr_of(fs(), temporary.value().node, "security.label"), "a label");
    volume_.crash();
    for (const uint32_t type : types) {
        const uint64_t node = volume_.lookup(kRootNode, "node" + std::to_string(type));
        EXPECT_EQ(xattr_of(fs(), node, "security.label"), "a label") << type;
    }
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(InitialXattrs, AsManyAsTheContractSays) {
    Xattrs many;
    for (size_t i = 0; i < vfs::kInitialXattrsMaximum; ++i) {
        many.emplace_back("user.number" + std::to_string(i), std::string(400, 'a' + char(i)));
    }
    const Result<vfs::Attributes> made = create("many", many);
    ASSERT_EQ(code(made), 0);
    for (const auto& [name, value] : many) {
        EXPECT_EQ(xattr_of(fs(), made.value().node, name), value);
    }
    many.emplace_back("user.one too many", "");
    EXPECT_EQ(code(create("refused", many)), E2BIG);
    const size_t longest = vfs::kInitialXattrsMaxBytes - 6;
    EXPECT_EQ(code(create("large", {{"user.x", std::string(longest, 'x')}})), 0);
    EXPECT_EQ(code(create("refused", {{"user.x", std::string(longest + 1, 'x')}})), E2BIG);
    EXPECT_EQ(xattr_of(fs(), volume_.lookup(kRootNode, "large"), "user.x").size(), longest);
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(InitialXattrs, RefusedWhole) {
    EXPECT_EQ(code(create("f", {{"user.a", "1"}, {"user.a", "2"}})), EINVAL);
    EXPECT_EQ(code(create("f", {{"system.posix_acl_access", "x"}})), EINVAL);
    EXPECT_EQ(code(create("f", {{"unknown.a", "x"}})), EOPNOTSUPP);
    EXPECT_EQ(code(create("f", {{"user.a", "x"}}, vfs::mode::fifo | 0644)), EPERM);
    EXPECT_EQ(code(create("f", {{"user.a", "x"}}, vfs::mode::symlink)), EPERM);
    EXPECT_EQ(code(create("f", {{"security.capability", std::string(513, 'x')}})), EINVAL);
    EXPECT_EQ(volume_.list(kRootNode), (std::vector<std::string>{".", ".."}));
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(InitialXattrs, ACapabilityIsKnownAsOne) {
    const Result<vfs::Attributes> made = create("f", {{"security.capability", "cap"}});
    ASSERT_EQ(code(made), 0);
    EXPECT_NE(made.value().traits & vfs::attribute_trait::capability, 0U);
    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::user_id_bit;
    change.user_id = 7;
    const Result<vfs::Attributes> given = fs().set_attributes({}, made.value().node, change);
    ASSERT_EQ(code(given), 0);
    EXPECT_EQ(given.value().traits & vfs::attribute_trait::capability, 0U);
    EXPECT_EQ(xattr_of(fs(), made.value().node, "security.capability"),
              "error " + std::to_string(ENODATA));
}

}  // namespace
}  // namespace tiffin::tiffinfs
