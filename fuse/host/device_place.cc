// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_place.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <utility>

#include "fuse/host/kernel_tables.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::fuse {
namespace {

constexpr uint64_t kSectorBytes = 512;
// Loop devices over loop devices; the kernel has a bound of its own.
constexpr int kMostLevels = 16;

using Descriptor = rdma_blk::UniqueDescriptor;

Descriptor open_to_look(const std::string& path) {
    return Descriptor(::open(path.c_str(), kOpenToLook));
}

std::string system_folder(dev_t device) {
    return "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
}

uint64_t number_in(const std::string& path) {
    return strtoull(first_line(path).c_str(), nullptr, 10);
}

// The whole of it: a name may have line feeds. The kernel adds one.
std::string text_in(const std::string& path) {
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (text.ends_with('\n')) {
        text.pop_back();
    }
    return text;
}

bool is_device(int descriptor, dev_t device) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISBLK(status.st_mode) && status.st_rdev == device;
}

// By the name that the kernel gives it.
Descriptor open_device(dev_t device) {
    std::ifstream file(system_folder(device) + "/uevent");
    constexpr std::string_view kKey = "DEVNAME=";
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(kKey)) {
            Descriptor opened = open_to_look("/dev/" + line.substr(kKey.size()));
            return opened.valid() && is_device(opened.get(), device) ? std::move(opened)
                                                                     : Descriptor(-1);
        }
    }
    return Descriptor(-1);
}

// As the kernel writes device numbers to struct loop_info64 (huge_encode_dev()).
dev_t decoded(uint64_t device) {
    return makedev(static_cast<unsigned>(device >> 8 & 0xfff),
                   static_cast<unsigned>((device & 0xff) | (device >> 12 & 0xfff00)));
}

// What lies in [begin, begin + length) of `outer`.
DevicePlace part_of(DevicePlace outer, uint64_t begin_bytes, uint64_t length_bytes) {
    outer.begin_bytes += begin_bytes;
    if (length_bytes != DevicePlace::kUnboundedBytes) {
        outer.end_bytes = std::min(outer.end_bytes, outer.begin_bytes + length_bytes);
    }
    return outer;
}

std::optional<FoundPlace> find_place_below(int descriptor, int levels);

std::optional<FoundPlace> find_place_of_device(int descriptor, dev_t device, int levels) {
    FoundPlace found;
    const std::string folder = system_folder(device);
    loop_info64 loop{};
    if (access((folder + "/partition").c_str(), F_OK) == 0) {
        if (const dev_t disk = device_number_in(first_line(folder + "/../dev")); disk != 0) {
            const Descriptor opened = open_device(disk);
            if (const auto below =
                    opened.valid() ? find_place_below(opened.get(), levels) : std::nullopt) {
                found = *below;
            } else {
                found.place.device = disk;
            }
            found.place = part_of(found.place, number_in(folder + "/start") * kSectorBytes,
                                  number_in(folder + "/size") * kSectorBytes);
            found.own_devices = {disk};
        }
    } else if (ioctl(descriptor, LOOP_GET_STATUS64, &loop) == 0) {
        if (loop.lo_rdevice != 0) {
            const Descriptor opened = open_device(decoded(loop.lo_rdevice));
            if (const auto below =
                    opened.valid() ? find_place_below(opened.get(), levels) : std::nullopt) {
                found = *below;
            } else {
                found.place.device = decoded(loop.lo_rdevice);
            }
            found.own_devices.clear();
        } else {
            found.place.device = decoded(loop.lo_device);
            found.place.inode = loop.lo_inode;
            found.file_path = text_in(folder + "/loop/backing_file");
        }
        found.place = part_of(
            found.place, loop.lo_offset,
            loop.lo_sizelimit == 0 ? DevicePlace::kUnboundedBytes : uint64_t{loop.lo_sizelimit});
    } else {
        found.place.device = device;
    }
    found.own_devices.push_back(device);
    return found;
}

std::optional<FoundPlace> find_place_below(int descriptor, int levels) {
    struct stat status {};
    if (levels == 0 || fstat(descriptor, &status) != 0) {
        return std::nullopt;
    }
    if (S_ISBLK(status.st_mode)) {
        return find_place_of_device(descriptor, status.st_rdev, levels - 1);
    }
    FoundPlace found;
    found.place.device = status.st_dev;
    found.place.inode = status.st_ino;
    return S_ISREG(status.st_mode) ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<FoundPlace> find_place(int descriptor) {
    return find_place_below(descriptor, kMostLevels);
}

std::optional<DevicePlace> find_place(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return std::nullopt;
    }
    DevicePlace place;
    if (S_ISREG(status.st_mode)) {
        place.device = status.st_dev;
        place.inode = status.st_ino;
        return place;
    }
    if (!S_ISBLK(status.st_mode)) {
        return std::nullopt;
    }
    const Descriptor opened = open_to_look(path);
    if (const auto found = opened.valid() ? find_place(opened.get()) : std::nullopt) {
        return found->place;
    }
    place.device = status.st_rdev;
    return place;
}

}  // namespace tiffin::fuse
