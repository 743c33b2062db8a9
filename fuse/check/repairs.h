// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changes that one pass over the keys has decided on, and that are made when the pass is over.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fuse/check/key_space.h"

namespace tiffin::check {

class Repairs {
  public:
    void put(tiffinfs::Key key, std::vector<unsigned char> value) { keys_[key] = std::move(value); }
    void erase(tiffinfs::Key key) { keys_[key] = std::nullopt; }
    // The inode as it will be: `current` the first time, then with what others have corrected. Valid
    // until apply().
    tiffinfs::InodeValue& inode(uint64_t node, const tiffinfs::InodeValue& current) {
        return inodes_.try_emplace(node, current).first->second;
    }
    // Removes all keys in [first, end).
    void erase_range(tiffinfs::Key first, tiffinfs::Key end) {
        later([first, end](KeySpace& keys) -> Result<void> {
            keys.erase_range(first, end);
            return {};
        });
    }
    // Something that needs to look at the keys; runs after all simple changes, in order.
    void later(std::function<Result<void>(KeySpace&)> task) { tasks_.push_back(std::move(task)); }

    bool empty() const { return keys_.empty() && inodes_.empty() && tasks_.empty(); }

    // Makes the changes in `keys` and forgets them. Errors: eio.
    Result<void> apply(KeySpace& keys) {
        for (const auto& [key, value] : keys_) {
            if (value.has_value()) {
                keys.put(key, ByteSpan(value->data(), value->size()));
            } else {
                keys.erase(key);
            }
        }
        for (const auto& [node, inode] : inodes_) {
            keys.put_value(tiffinfs::make_key(node, tiffinfs::Kind::inode, 0), inode);
        }
        keys_.clear();
        inodes_.clear();
        const auto tasks = std::exchange(tasks_, {});
        for (const auto& task : tasks) {
            TRY(task(keys));
        }
        return {};
    }

  private:
    // nullopt: the key is removed.
    std::map<tiffinfs::Key, std::optional<std::vector<unsigned char>>> keys_;
    std::map<uint64_t, tiffinfs::InodeValue> inodes_;
    std::vector<std::function<Result<void>(KeySpace&)>> tasks_;
};

}  // namespace tiffin::check
