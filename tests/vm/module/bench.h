// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the steps of the test share: a file system on a device, checks that say where they failed, and
// short forms of the operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/file_system.h"
#include "tests/vm/module/memory_device.h"

namespace tiffin::vm {

// Logs where a check failed; returns the error that ends the step.
Error failed(const char* file, int line, const char* what);
Error failed_with(const char* file, int line, const char* what, Error error);

// CHECK(condition): ends the step when it does not hold.
#define CHECK(condition)                                                 \
    do {                                                                 \
        if (!(condition)) {                                              \
            return ::tiffin::vm::failed(__FILE__, __LINE__, #condition); \
        }                                                                \
    } while (false)

// CHECK_OK(expression): the value of a Result; ends the step when it is an error.
#define CHECK_OK(expression)                                                  \
    __extension__({                                                           \
        auto check_result_ = (expression);                                    \
        if (!check_result_.ok()) {                                            \
            return ::tiffin::vm::failed_with(__FILE__, __LINE__, #expression, \
                                             check_result_.error());          \
        }                                                                     \
        check_result_.release_value();                                        \
    })

// CHECK_ERROR(expression, code): ends the step unless the Result is this error.
#define CHECK_ERROR(expression, code)                                                  \
    do {                                                                               \
        auto check_result_ = (expression);                                             \
        if (check_result_.ok() || check_result_.error() != Error::code) {              \
            return ::tiffin::vm::failed(__FILE__, __LINE__, #expression " is " #code); \
        }                                                                              \
    } while (false)

inline constexpr uint64_t kBufferBytes = 1U << 20;

// A buffer on the heap, for one thread.
class Buffer {
  public:
    Buffer() = default;
    ~Buffer() { host::release_pages(data_, kBufferBytes); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // Errors: enomem.
    Result<void> open();
    unsigned char* data() { return data_; }

    // Bytes that depend on the place in the file and on `seed`, at any alignment.
    void fill(uint64_t seed, uint64_t offset_bytes, size_t size_bytes);
    bool matches(uint64_t seed, uint64_t offset_bytes, size_t size_bytes) const;
    bool is_zero(size_t size_bytes) const;

  private:
    unsigned char* data_ = nullptr;
};

// A name with a number, such as "file17".
struct NumberedName {
    NumberedName(const char* text, uint32_t number);
    operator vfs::Name() const { return {text_, size_}; }  // NOLINT

  private:
    char text_[24];
    size_t size_;
};

// A file system on a device that outlives it, and the operations of one thread on it.
class Bench {
  public:
    explicit Bench(MemoryDevice& memory_device) : device(memory_device) {}

    Result<void> open() { return buffer.open(); }
    Result<void> mount();
    Result<void> unmount();
    // The device loses its power, and has it again when the file system is gone.
    Result<void> crash();

    // Whole files or parts of them, filled from `seed`; in pieces of at most kBufferBytes.
    Result<void> write(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes, uint64_t seed);
    Result<void> verify(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes,
                        uint64_t seed);
    Result<void> verify_zeros(vfs::NodeId node, uint64_t offset_bytes, uint64_t size_bytes);
    // A new regular file; its reference is kept until the file system is unmounted.
    Result<vfs::NodeId> create(vfs::NodeId parent, vfs::Name name);
    Result<vfs::NodeId> make_directory(vfs::NodeId parent, vfs::Name name);
    Result<vfs::NodeId> find(vfs::NodeId parent, vfs::Name name);
    Result<uint64_t> size_of(vfs::NodeId node);
    // Without "." and "..".
    Result<uint32_t> count_entries(vfs::NodeId directory);

    MemoryDevice& device;
    vfs::FileSystem* file_system = nullptr;
    Buffer buffer;

  private:
    Result<size_t> read(vfs::NodeId node, uint64_t offset_bytes, size_t size_bytes);
};

// ---- The steps, in their order -------------------------------------------------------------------

Result<void> check_services();              // step_services.cc: host.h itself
Result<void> check_hello();                 // the smallest file system
Result<void> make_and_mount(Bench& bench);  // step_files.cc
Result<void> write_files(Bench& bench);     // what check_files() finds, also after a mount
Result<void> check_files(Bench& bench);
Result<void> remount(Bench& bench);
Result<void> change_names(Bench& bench);  // step_names.cc
Result<void> change_attributes(Bench& bench);
Result<void> list_directories(Bench& bench);
Result<void> change_space(Bench& bench);    // step_space.cc
Result<void> use_lower_path(Bench& bench);  // step_data.cc
Result<void> detect_damage(Bench& bench);
Result<void> fill_device(Bench& bench);
Result<void> recover(Bench& bench);
Result<void> run_threads(Bench& bench);  // step_threads.cc
Result<void> scrub(Bench& bench);        // step_data.cc

}  // namespace tiffin::vm
