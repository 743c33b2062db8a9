// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An object of each thread, made when the thread first asks for it and deleted when the thread ends. As thread_local
// is, but where there is no memory the thread is told, and may ask again: glibc ends the process when it has none to
// note the destructor of a thread_local.
#pragma once

#include <pthread.h>

#include <memory>
#include <new>

namespace tiffin::fuse {

// T is made without arguments. What the first thread has, and not its end but that of the process ends, is not deleted.
template <typename T>
class ThreadObject {
  public:
    // That of the calling thread; nullptr when there is no memory for it.
    static T* get() {
        if (object == nullptr) [[unlikely]] {
            object = make();
        }
        return object;
    }

  private:
    struct Key {
        Key()
            : exists(pthread_key_create(
                         &key, [](void* of_thread) { delete static_cast<T*>(of_thread); }) == 0) {}

        pthread_key_t key = 0;
        bool exists;
    };

    static T* make() {
        static const Key key;
        auto made = std::unique_ptr<T>(new (std::nothrow) T);
        if (made == nullptr || !key.exists || pthread_setspecific(key.key, made.get()) != 0) {
            return nullptr;
        }
        return made.release();
    }

    static constinit thread_local T* object;
};

template <typename T>
constinit thread_local T* ThreadObject<T>::object = nullptr;

}  // namespace tiffin::fuse
