// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/attributes/acl.h"

#include <gtest/gtest.h>

#include <cstring>
#include <initializer_list>
#include <vector>

namespace tiffin::tiffinfs {
namespace {

class Acl {
  public:
    Acl(std::initializer_list<AclEntry> entries, uint32_t version = kAclVersion) {
        const AclHeader header{version};
        append(&header, sizeof(header));
        for (const AclEntry& entry : entries) {
            append(&entry, sizeof(entry));
        }
    }

    ByteSpan bytes() const { return ByteSpan(bytes_.data(), bytes_.size()); }
    MutableByteSpan bytes() { return MutableByteSpan(bytes_.data(), bytes_.size()); }
    uint16_t permissions(size_t index) const { return entry(index).permissions; }
    AclEntry entry(size_t index) const {
        AclEntry result{};
        std::memcpy(&result, bytes_.data() + sizeof(AclHeader) + index * sizeof(result),
                    sizeof(result));
        return result;
    }

  private:
    void append(const void* data, size_t size) {
        const auto* begin = static_cast<const unsigned char*>(data);
        bytes_.insert(bytes_.end(), begin, begin + size);
    }
    std::vector<unsigned char> bytes_;
};

Acl minimal_acl() {
    return Acl({{acl_tag::owner, 7, kAclNoId},
                {acl_tag::owning_group, 5, kAclNoId},
                {acl_tag::others, 4, kAclNoId}});
}

Acl extended_acl() {
    return Acl({{acl_tag::owner, 7, kAclNoId},
                {acl_tag::user, 6, 1000},
                {acl_tag::owning_group, 5, kAclNoId},
                {acl_tag::group, 7, 2000},
                {acl_tag::mask, 6, kAclNoId},
                {acl_tag::others, 0, kAclNoId}});
}

void expect_refused(const Acl& acl, Error error) {
    Result<uint32_t> checked = check_acl(acl.bytes());
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error(), error);
}

TEST(Acl, AcceptsWellFormedOnes) {
    EXPECT_EQ(check_acl(minimal_acl().bytes()).value_or(99), 3U);
    EXPECT_EQ(check_acl(extended_acl().bytes()).value_or(99), 6U);
    EXPECT_EQ(check_acl(Acl({}).bytes()).value_or(99), 0U);
}

TEST(Acl, AMaskAloneIsAllowed) {
    const Acl acl({{acl_tag::owner, 7, kAclNoId},
                   {acl_tag::owning_group, 7, kAclNoId},
                   {acl_tag::mask, 1, kAclNoId},
                   {acl_tag::others, 0, kAclNoId}});
    EXPECT_EQ(check_acl(acl.bytes()).value_or(99), 4U);
    uint32_t mode = 0;
    EXPECT_FALSE(acl_to_mode(acl.bytes(), mode));
    EXPECT_EQ(mode, 0710U);
}

TEST(Acl, RefusesWrongSizesAndVersions) {
    const Acl acl = minimal_acl();
    for (size_t size = 0; size < acl.bytes().size(); ++size) {
        if (size != sizeof(AclHeader)) {
            EXPECT_FALSE(check_acl(acl.bytes().first(size)).ok()) << size;
        }
    }
    expect_refused(Acl({}, 1), Error::eopnotsupp);
}

TEST(Acl, RefusesWrongEntries) {
    // Out of order, doubled, missing.
    expect_refused(
        Acl({{acl_tag::owning_group, 5, 0}, {acl_tag::owner, 7, 0}, {acl_tag::others, 4, 0}}),
        Error::einval);
    expect_refused(Acl({{acl_tag::owner, 7, 0},
                        {acl_tag::owner, 7, 0},
                        {acl_tag::owning_group, 5, 0},
                        {acl_tag::others, 4, 0}}),
                   Error::einval);
    expect_refused(Acl({{acl_tag::owner, 7, 0}, {acl_tag::owning_group, 5, 0}}), Error::einval);
    expect_refused(Acl({{acl_tag::owner, 7, 0},
                        {acl_tag::owning_group, 5, 0},
                        {acl_tag::others, 4, 0},
                        {acl_tag::others, 4, 0}}),
                   Error::einval);
    // Users without a mask, an id that is none, permissions that are none, a tag that is none.
    expect_refused(Acl({{acl_tag::owner, 7, 0},
                        {acl_tag::user, 7, 1},
                        {acl_tag::owning_group, 5, 0},
                        {acl_tag::others, 4, 0}}),
                   Error::einval);
    expect_refused(Acl({{acl_tag::owner, 7, 0},
                        {acl_tag::user, 7, kAclNoId},
                        {acl_tag::owning_group, 5, 0},
                        {acl_tag::mask, 7, 0},
                        {acl_tag::others, 4, 0}}),
                   Error::einval);
    expect_refused(
        Acl({{acl_tag::owner, 8, 0}, {acl_tag::owning_group, 5, 0}, {acl_tag::others, 4, 0}}),
        Error::einval);
    expect_refused(Acl({{0x40, 7, 0}, {acl_tag::owning_group, 5, 0}, {acl_tag::others, 4, 0}}),
                   Error::einval);
}

TEST(Acl, IdsWithoutMeaningAreNormalized) {
    Acl acl({{acl_tag::owner, 7, 3},
             {acl_tag::user, 6, 1000},
             {acl_tag::owning_group, 5, 4},
             {acl_tag::mask, 6, 5},
             {acl_tag::others, 0, 6}});
    normalize_acl(acl.bytes());
    EXPECT_EQ(acl.entry(0).id, kAclNoId);
    EXPECT_EQ(acl.entry(1).id, 1000U);
    EXPECT_EQ(acl.entry(2).id, kAclNoId);
    EXPECT_EQ(acl.entry(4).id, kAclNoId);
}

TEST(Acl, TheModeOfAMinimalOneSaysItAll) {
    uint32_t mode = 0100000 | 04000;
    EXPECT_TRUE(acl_to_mode(minimal_acl().bytes(), mode));
    EXPECT_EQ(mode, 0100000U | 04000U | 0754U);
}

TEST(Acl, TheModeShowsTheMaskAsGroup) {
    uint32_t mode = 0;
    EXPECT_FALSE(acl_to_mode(extended_acl().bytes(), mode));
    EXPECT_EQ(mode, 0760U);
}

TEST(Acl, ChmodChangesTheMask) {
    Acl acl = extended_acl();
    apply_mode_to_acl(acl.bytes(), 0641);
    EXPECT_EQ(acl.permissions(0), 6);  // owner
    EXPECT_EQ(acl.permissions(1), 6);  // a user: limited by the mask alone
    EXPECT_EQ(acl.permissions(2), 5);  // the owning group too
    EXPECT_EQ(acl.permissions(4), 4);  // mask
    EXPECT_EQ(acl.permissions(5), 1);  // others
}

TEST(Acl, ChmodChangesTheGroupWithoutAMask) {
    Acl acl = minimal_acl();
    apply_mode_to_acl(acl.bytes(), 0620);
    uint32_t mode = 0;
    EXPECT_TRUE(acl_to_mode(acl.bytes(), mode));
    EXPECT_EQ(mode, 0620U);
}

TEST(Acl, InheritanceGivesNoMoreThanModeAndAcl) {
    Acl acl = extended_acl();
    uint32_t mode = 0100000 | 0646;
    EXPECT_FALSE(inherit_acl(acl.bytes(), mode));
    EXPECT_EQ(mode, 0100000U | 0640U);
    EXPECT_EQ(acl.permissions(0), 6);
    EXPECT_EQ(acl.permissions(2), 5);  // the owning group stays: the mask limits it
    EXPECT_EQ(acl.permissions(4), 4);  // mask 6 and mode 4
    EXPECT_EQ(acl.permissions(5), 0);
}

TEST(Acl, AMinimalDefaultAclIsAUmask) {
    Acl acl = minimal_acl();  // 754
    uint32_t mode = 0666;
    EXPECT_TRUE(inherit_acl(acl.bytes(), mode));
    EXPECT_EQ(mode, 0644U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
