// The thread pool that parallel_for runs on, at a size of the test's choice.
#pragma once

#include <cstddef>
#include <cstdint>

#if __has_include(<executorch/extension/threadpool/threadpool.h>) && __has_include(<pthreadpool.h>)
#include <executorch/extension/threadpool/threadpool.h>
#else
// As in runner/runtime.cpp: the Python package has the library but not this header.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  bool _unsafe_reset_threadpool(uint32_t num_threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool
#endif

inline bool set_pool(uint32_t threads) { return executorch::extension::threadpool::get_threadpool()->_unsafe_reset_threadpool(threads); }
