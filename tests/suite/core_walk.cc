// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From paths to nodes.
#include <algorithm>
#include <cerrno>
#include <deque>

#include "tests/suite/core_detail.h"
#include "tests/suite/core_under_test.h"

namespace tiffin::suite {

namespace {

constexpr int kMaxSymlinks = 40;
constexpr size_t kPathMaxBytes = 4096;

void append_components(const std::string& path, std::deque<std::string>& components) {
    std::vector<std::string> parts;
    for (size_t at = 0; at < path.size();) {
        size_t slash = std::min(path.find('/', at), path.size());
        if (slash > at) {
            parts.push_back(path.substr(at, slash - at));
        }
        at = slash + 1;
    }
    components.insert(components.begin(), parts.begin(), parts.end());
}

}  // namespace

NodeReference& NodeReference::operator=(NodeReference&& other) noexcept {
    if (this != &other) {
        reset();
        file_system_ = other.file_system_;
        attributes_ = other.attributes_;
        owned_ = other.owned_;
        other.file_system_ = nullptr;
    }
    return *this;
}

void NodeReference::reset() {
    if (file_system_ != nullptr && owned_) {
        file_system_->forget(attributes_.node, 1);
    }
    file_system_ = nullptr;
}

NodeReference CoreUnderTest::root() {
    vfs::Attributes attributes;
    attributes.node = vfs::kRootNode;
    attributes.mode = vfs::mode::directory;
    // It needs no reference.
    return NodeReference::borrowed(*file_system_, attributes);
}

int64_t CoreUnderTest::walk(const std::string& path, bool follow_last, Place& place) {
    return walk(root(), path, follow_last, place);
}

int64_t CoreUnderTest::walk(NodeReference start, const std::string& path, bool follow_last,
                            Place& place) {
    if (path.size() >= kPathMaxBytes) {
        return -ENAMETOOLONG;
    }
    std::deque<std::string> components;
    append_components(path, components);
    place.must_be_directory = !path.empty() && path.back() == '/';
    NodeReference current = std::move(start);
    if (components.empty()) {
        place.name = ".";
        place.node = std::move(current);
        place.parent = root();
        return 0;
    }
    int symlinks = 0;
    for (;;) {
        if (!vfs::mode::is_directory(current.attributes().mode)) {
            return -ENOTDIR;
        }
        std::string name = components.front();
        components.pop_front();
        bool last = components.empty();
        Result<vfs::Attributes> found = file_system_->lookup(current.node(), name_of(name));
        if (!found.ok()) {
            if (last && found.error() == Error::enoent) {
                place.parent = std::move(current);
                place.name = std::move(name);
                return 0;
            }
            return -errno_value(found.error());
        }
        NodeReference node(*file_system_, found.value());
        if (vfs::mode::is_symlink(node.attributes().mode) &&
            (!last || follow_last || place.must_be_directory)) {
            if (symlinks++ >= kMaxSymlinks) {
                return -ELOOP;
            }
            std::string target(kPathMaxBytes, '\0');
            Result<size_t> size = file_system_->read_link(node.node(), bytes_of(target));
            if (!size.ok()) {
                return -errno_value(size.error());
            }
            target.resize(size.value());
            if (last && !target.empty() && target.back() == '/') {
                place.must_be_directory = true;
            }
            if (target[0] == '/') {
                current = root();
            }
            append_components(target, components);
            if (components.empty()) {
                place.name = ".";
                place.node = root();
                place.parent = root();
                return 0;
            }
            continue;
        }
        if (last) {
            if (place.must_be_directory && !vfs::mode::is_directory(node.attributes().mode)) {
                return -ENOTDIR;
            }
            place.parent = std::move(current);
            place.name = std::move(name);
            place.node = std::move(node);
            return 0;
        }
        current = std::move(node);
    }
}

int64_t CoreUnderTest::find(const std::string& path, bool follow_last, NodeReference& node) {
    Place place;
    if (int64_t answer = walk(path, follow_last, place); answer < 0) {
        return answer;
    }
    if (!place.node.valid()) {
        return -ENOENT;
    }
    node = std::move(place.node);
    return 0;
}

int64_t CoreUnderTest::find_free(const std::string& path, Place& place) {
    if (int64_t answer = walk(path, false, place); answer < 0) {
        return answer;
    }
    return place.node.valid() ? -EEXIST : 0;
}

}  // namespace tiffin::suite
