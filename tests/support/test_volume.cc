// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/test_volume.h"

#include <algorithm>
#include <utility>

namespace tiffin::test {
namespace {

const vfs::Caller kRoot{0, 0, 022};

vfs::Name name_of(std::string_view text) { return {text.data(), text.size()}; }

class Names final : public vfs::DirectorySink {
  public:
    bool add(const vfs::DirectoryEntry& entry) override {
        const std::string name(entry.name.data, entry.name.size_bytes);
        if (name != "." && name != "..") {
            names.push_back(name);
        }
        cookie = entry.next_cookie;
        ++added;
        return true;
    }
    std::vector<std::string> names;
    uint64_t cookie = 0;
    uint64_t added = 0;
};

std::string describe(const SeenObject& object) {
    return "mode " + std::to_string(object.mode) + ", links " + std::to_string(object.link_count) +
           ", size " + std::to_string(object.size_bytes) + ", attributes " +
           std::to_string(object.xattrs.size());
}

}  // namespace

std::string difference(const SeenTree& a, const SeenTree& b) {
    for (const auto& [path, object] : a) {
        const auto other = b.find(path);
        if (other == b.end()) {
            return path + " is only in the first";
        }
        if (!(object == other->second)) {
            return path + " differs: " + describe(object) + "; " + describe(other->second) +
                   (object.content == other->second.content ? "" : "; content");
        }
    }
    for (const auto& [path, object] : b) {
        if (a.count(path) == 0) {
            return path + " is only in the second";
        }
    }
    return {};
}

tiffinfs::MountOptions TestVolume::quiet_options() {
    tiffinfs::MountOptions options;
    options.volume.commit_interval_ms = 0;
    options.volume.cache_bytes = 8U << 20;
    options.access_time = tiffinfs::AccessTimePolicy::noatime;
    options.maximum_objects = 1024;
    return options;
}

Result<void> TestVolume::make(uint64_t journal_bytes) {
    tiffinfs::MakeOptions options;
    options.label = vfs::Name("test");
    options.journal_bytes = journal_bytes;
    return tiffinfs::make_file_system(device_, options);
}

Result<void> TestVolume::mount(const tiffinfs::MountOptions& options) {
    TIFFIN_ASSERT(file_system_ == nullptr);
    file_system_ = TRY(tiffinfs::mount(device_, options));
    return {};
}

Result<void> TestVolume::unmount() {
    const Result<void> result = file_system_->unmount();
    abandon();
    return result.ok() ? Result<void>() : Result<void>(result.error());
}

void TestVolume::abandon() {
    if (file_system_ != nullptr) {
        tiffinfs::destroy(std::exchange(file_system_, nullptr));
    }
}

// ---- Paths --------------------------------------------------------------------------------------

Result<vfs::NodeId> TestVolume::find(const std::string& path) {
    vfs::NodeId node = vfs::kRootNode;
    for (size_t begin = 1; begin < path.size();) {
        const size_t end = std::min(path.find('/', begin), path.size());
        const std::string name = path.substr(begin, end - begin);
        const vfs::Attributes found = TRY(file_system_->lookup(node, name_of(name)));
        file_system_->forget(found.node, 1);
        node = found.node;
        begin = end + 1;
    }
    return node;
}

Result<TestVolume::Place> TestVolume::place_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    TIFFIN_ASSERT(slash != std::string::npos && slash + 1 < path.size());
    return Place{TRY(find(path.substr(0, slash))), path.substr(slash + 1)};
}

Result<vfs::Attributes> TestVolume::attributes(const std::string& path) {
    return file_system_->get_attributes(TRY(find(path)));
}

// ---- Names --------------------------------------------------------------------------------------

Result<void> TestVolume::create(const std::string& path, uint32_t mode) {
    const Place place = TRY(place_of(path));
    const vfs::Attributes made =
        TRY(file_system_->create(kRoot, place.parent, name_of(place.name), mode, 8, 1, {}));
    file_system_->forget(made.node, 1);
    return {};
}

Result<void> TestVolume::make_directory(const std::string& path) {
    const Place place = TRY(place_of(path));
    const vfs::Attributes made =
        TRY(file_system_->make_directory(kRoot, place.parent, name_of(place.name), 0755, {}));
    file_system_->forget(made.node, 1);
    return {};
}

Result<void> TestVolume::make_symlink(const std::string& path, const std::string& target) {
    const Place place = TRY(place_of(path));
    const vfs::Attributes made = TRY(
        file_system_->make_symlink(kRoot, place.parent, name_of(place.name), name_of(target), {}));
    file_system_->forget(made.node, 1);
    return {};
}

Result<void> TestVolume::link(const std::string& path, const std::string& new_path) {
    const vfs::NodeId node = TRY(find(path));
    const Place place = TRY(place_of(new_path));
    const vfs::Attributes linked =
        TRY(file_system_->link({}, node, place.parent, name_of(place.name)));
    file_system_->forget(linked.node, 1);
    return {};
}

Result<void> TestVolume::unlink(const std::string& path) {
    const Place place = TRY(place_of(path));
    return file_system_->unlink({}, place.parent, name_of(place.name));
}

Result<void> TestVolume::remove_directory(const std::string& path) {
    const Place place = TRY(place_of(path));
    return file_system_->remove_directory({}, place.parent, name_of(place.name));
}

Result<void> TestVolume::rename(const std::string& path, const std::string& new_path,
                                uint32_t flags) {
    const Place from = TRY(place_of(path));
    const Place to = TRY(place_of(new_path));
    return file_system_->rename({}, from.parent, name_of(from.name), to.parent, name_of(to.name),
                                flags);
}

// ---- Content ------------------------------------------------------------------------------------

Result<void> TestVolume::write(const std::string& path, uint64_t offset_bytes,
                               std::string_view data) {
    Result<vfs::NodeId> node = find(path);
    if (!node.ok() && node.error() == Error::enoent) {
        TRY(create(path));
    }
    const vfs::NodeId target = node.ok() ? *node : TRY(find(path));
    std::string copy(data);  // the contract wants memory that is not constant
    // A short write means that the next one says why.
    for (size_t done = 0; done < copy.size();) {
        const vfs::IoVector buffer{copy.data() + done, copy.size() - done};
        const size_t written = TRY(file_system_->write(target, 0, offset_bytes + done,
                                                       Span<const vfs::IoVector>(&buffer, 1), 0));
        if (written == 0) {
            return Error::eio;
        }
        done += written;
    }
    return {};
}

Result<std::string> TestVolume::read(const std::string& path) {
    const vfs::Attributes attributes_now = TRY(attributes(path));
    return read(path, 0, std::min(attributes_now.size_bytes, kReadMaximumBytes));
}

Result<std::string> TestVolume::read(const std::string& path, uint64_t offset_bytes,
                                     size_t size_bytes) {
    std::string data(size_bytes, '\0');
    const vfs::IoVector buffer{data.data(), data.size()};
    const vfs::NodeId node = TRY(find(path));
    const size_t got =
        TRY(file_system_->read(node, 0, offset_bytes, Span<const vfs::IoVector>(&buffer, 1)));
    if (got != data.size()) {
        return Error::eio;
    }
    return data;
}

Result<void> TestVolume::truncate(const std::string& path, uint64_t size_bytes) {
    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::size_bit;
    change.size_bytes = size_bytes;
    const vfs::NodeId node = TRY(find(path));
    TRY(file_system_->set_attributes(kRoot, node, change));
    return {};
}

Result<void> TestVolume::allocate(const std::string& path, uint32_t mode, uint64_t offset_bytes,
                                  uint64_t length_bytes) {
    return file_system_->allocate(TRY(find(path)), mode, offset_bytes, length_bytes);
}

Result<void> TestVolume::set_xattr(const std::string& path, const std::string& name,
                                   std::string_view value) {
    return file_system_->set_xattr(
        {}, TRY(find(path)), name_of(name),
        ByteSpan(reinterpret_cast<const unsigned char*>(value.data()), value.size()), 0);
}

Result<void> TestVolume::remove_xattr(const std::string& path, const std::string& name) {
    return file_system_->remove_xattr({}, TRY(find(path)), name_of(name));
}

Result<void> TestVolume::fsync(const std::string& path) {
    return file_system_->fsync(TRY(find(path)), false);
}

Result<void> TestVolume::sync() { return file_system_->sync(true); }

Result<std::vector<std::string>> TestVolume::list(const std::string& path) {
    const vfs::NodeId node = TRY(find(path));
    Names names;
    do {
        names.added = 0;
        TRY(file_system_->read_directory(node, 0, names.cookie, false, names));
    } while (names.added != 0);
    std::sort(names.names.begin(), names.names.end());
    return names.names;
}

Result<vfs::NodeId> TestVolume::make_temporary(std::string_view data) {
    const vfs::Attributes made =
        TRY(file_system_->make_temporary(kRoot, vfs::kRootNode, vfs::mode::regular | 0600, {}));
    std::string copy(data);
    const vfs::IoVector buffer{copy.data(), copy.size()};
    TRY(file_system_->write(made.node, 0, 0, Span<const vfs::IoVector>(&buffer, 1), 0));
    return made.node;
}

// ---- Looking ------------------------------------------------------------------------------------

Result<SeenTree> TestVolume::see(Unreadable unreadable) {
    SeenTree tree;
    TRY(see_object("/", unreadable, tree));
    return tree;
}

Result<void> TestVolume::see_object(const std::string& path, Unreadable unreadable,
                                    SeenTree& tree) {
    const vfs::Attributes found = TRY(attributes(path));
    SeenObject object{found.mode, found.link_count, found.size_bytes, {}, {}};
    if (vfs::mode::is_regular(found.mode)) {
        Result<std::string> content = read(path);
        const bool shown =
            unreadable == Unreadable::shown && !content.ok() && content.error() == Error::eio;
        object.content = shown ? kUnreadable : TRY(std::move(content));
    } else if (vfs::mode::is_symlink(found.mode)) {
        unsigned char target[vfs::kSymlinkMaxBytes];
        const Result<size_t> size =
            file_system_->read_link(found.node, MutableByteSpan(target, sizeof target));
        if (size.ok()) {
            object.content.assign(reinterpret_cast<char*>(target), size.value());
        } else if (unreadable == Unreadable::shown && size.error() == Error::eio) {
            object.content = kUnreadable;
        } else {
            return size.error();
        }
    }
    std::string names(TRY(file_system_->list_xattr(found.node, {})), '\0');
    if (!names.empty()) {
        TRY(file_system_->list_xattr(
            found.node,
            MutableByteSpan(reinterpret_cast<unsigned char*>(names.data()), names.size())));
    }
    for (size_t begin = 0; begin < names.size();) {
        const std::string name = names.c_str() + begin;
        std::string value(TRY(file_system_->get_xattr(found.node, name_of(name), {})), '\0');
        if (!value.empty()) {
            TRY(file_system_->get_xattr(
                found.node, name_of(name),
                MutableByteSpan(reinterpret_cast<unsigned char*>(value.data()), value.size())));
        }
        object.xattrs[name] = value;
        begin += name.size() + 1;
    }
    tree[path] = object;
    if (vfs::mode::is_directory(found.mode)) {
        for (const std::string& name : TRY(list(path))) {
            TRY(see_object(path == "/" ? "/" + name : path + "/" + name, unreadable, tree));
        }
    }
    return {};
}

// ---- Content for tests ----------------------------------------------------------------------------

std::string test_content(uint64_t seed, size_t size_bytes) {
    std::string content(size_bytes, '\0');
    uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
    for (char& byte : content) {
        // xorshift64: cheap, and never the same block twice.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        byte = static_cast<char>(state);
    }
    return content;
}

Result<void> populate(TestVolume& volume, uint32_t files) {
    constexpr size_t kBlock = vfs::kBlockBytes;
    TRY(volume.make_directory("/directory"));
    TRY(volume.make_directory("/directory/inner"));
    TRY(volume.make_directory("/directory/inner/deep"));
    TRY(volume.make_directory("/empty"));
    TRY(volume.write("/tiny", 0, "inline content"));
    TRY(volume.write("/directory/large", 0, test_content(1, 300 * kBlock + 17)));
    TRY(volume.write("/directory/inner/sparse", 50 * kBlock, test_content(2, 3 * kBlock)));
    TRY(volume.write("/directory/inner/sparse", 900 * kBlock, test_content(3, 100)));
    TRY(volume.write("/reserved", 0, test_content(4, kBlock)));
    TRY(volume.allocate("/reserved", vfs::allocate_flag::keep_size, 0, 200 * kBlock));
    TRY(volume.create("/no-content"));
    TRY(volume.link("/tiny", "/directory/hard-link"));
    TRY(volume.make_symlink("/short-link", "directory/inner"));
    TRY(volume.make_symlink("/long-link", std::string(3000, 'x')));
    TRY(volume.create("/fifo", vfs::mode::fifo | 0600));
    TRY(volume.create("/device", vfs::mode::character_device | 0600));
    TRY(volume.set_xattr("/tiny", "user.small", "value"));
    TRY(volume.set_xattr("/directory", "user.large", test_content(5, 5000)));
    TRY(volume.make_directory("/many"));
    for (uint32_t i = 0; i < files; ++i) {
        const std::string path = "/many/file-" + std::to_string(i);
        TRY(volume.write(path, 0, test_content(100 + i, i % 7 * 200)));
    }
    return {};
}

}  // namespace tiffin::test
