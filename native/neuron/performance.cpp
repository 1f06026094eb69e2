#include "performance.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>

#include "library.h"
#include "log.h"

namespace etcli::neuron {

namespace {

constexpr int32_t kFastSingleAnswer = 1;
constexpr uint32_t kLockMilliseconds = 2000;
constexpr std::chrono::milliseconds kRenewal{1000};

struct Functions {
  int32_t (*acquire)(int32_t handle, int32_t mode, uint32_t milliseconds) = nullptr;
  bool (*release)(int32_t handle) = nullptr;
};

Functions find_functions() {
  const Library library = open_library({"libapuwareutils_v2.mtk.so", "libapuwareutils.mtk.so"});
  if (!library) return {};
  std::vector<std::string> missing;
  Functions found;
  found.acquire = reinterpret_cast<decltype(found.acquire)>(find_function(library, "acquirePerformanceLockInternal", missing));
  found.release = reinterpret_cast<decltype(found.release)>(find_function(library, "releasePerformanceLockInternal", missing));
  if (missing.empty()) return found;
  log_info(text(library.name, " lacks ", joined(missing), ": the NPU's clock is left as it is"));
  return {};
}

}  // namespace

class PerformanceLock {
 public:
  explicit PerformanceLock(const Functions& library) : library_(library), thread_([this] { keep(); }) {}

  ~PerformanceLock() {
    {
      const std::lock_guard<std::mutex> hold(lock_);
      ending_ = true;
    }
    wake_.notify_one();
    thread_.join();
    if (handle_ != 0) library_.release(handle_);
  }

 private:
  void keep() {
    std::unique_lock<std::mutex> hold(lock_);
    while (!ending_) {
      handle_ = library_.acquire(handle_, kFastSingleAnswer, kLockMilliseconds);
      wake_.wait_for(hold, kRenewal, [this] { return ending_; });
    }
  }

  const Functions library_;
  std::mutex lock_;
  std::condition_variable wake_;
  bool ending_ = false;
  int32_t handle_ = 0;
  std::thread thread_;  // last: it starts with everything else there
};

std::shared_ptr<PerformanceLock> performance_lock() {
  static const Functions library = find_functions();
  if (library.acquire == nullptr) return nullptr;
  static std::mutex lock;
  static std::weak_ptr<PerformanceLock> current;
  const std::lock_guard<std::mutex> hold(lock);
  auto held = current.lock();
  if (held != nullptr) return held;
  try {
    held = std::make_shared<PerformanceLock>(library);
  } catch (const std::system_error& no_thread) {
    log_info(text("no thread for the NPU's performance lock: ", no_thread.what()));
  }
  current = held;
  return held;
}

}  // namespace etcli::neuron
