#include "runtime.h"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/backend/options.h>
#include <executorch/runtime/platform/platform.h>
#include <executorch/runtime/platform/runtime.h>

#ifdef ETCLI_OPENMP
#include <omp.h>
#endif

#include "failure.h"
#include "json.h"

#if __has_include(<executorch/extension/threadpool/threadpool.h>) && __has_include(<pthreadpool.h>)
#include <executorch/extension/threadpool/threadpool.h>
#else
// The Python package exports the thread pool from libexecutorch_threadpool.so, but has no header for it; an installation may lack pthreadpool's,
// which that header includes. These are the three functions
// that we call, declared as ExecuTorch's extension/threadpool/threadpool.h declares them: none is virtual or inline and no object is made
// or copied here, so the linker finds the right functions or says what is missing.
namespace executorch::extension::threadpool {
class ThreadPool {
 public:
  size_t get_thread_count() const;
  bool _unsafe_reset_threadpool(uint32_t num_threads);
};
ThreadPool* get_threadpool();
}  // namespace executorch::extension::threadpool
#endif

#ifndef ETCLI_VERSION
#define ETCLI_VERSION "unknown"
#endif
#ifndef ETCLI_EXECUTORCH_VERSION
#define ETCLI_EXECUTORCH_VERSION "unknown"
#endif

namespace etcli {

namespace {

constexpr size_t kKeptErrors = 3;
std::mutex kept_errors_lock;  // worker threads log too
std::deque<std::string> kept_errors;
bool is_verbose = false;
RuntimeHooks hooks{};

void keep_log_message(et_timestamp_t, et_pal_log_level_t level, const char* file, const char*, size_t line, const char* message, size_t length) {
  const bool is_error = level == kError || level == kFatal;
  if (!is_error && !is_verbose) return;
  const std::string words = valid_utf8({message, length});
  hooks.log(is_error, text(static_cast<char>(level), " executorch:", file, ":", line, "] ", words));
  if (!is_error) return;
  const std::lock_guard<std::mutex> hold(kept_errors_lock);
  kept_errors.push_back(words);
  while (!kept_errors.back().empty() && kept_errors.back().back() == '.') kept_errors.back().pop_back();
  if (kept_errors.size() > kKeptErrors) kept_errors.pop_front();
}

[[noreturn]] void end_on_abort() {
  hooks.on_abort();
  std::abort();
}

}  // namespace

void start_runtime(bool verbose, const RuntimeHooks& with) {
  is_verbose = verbose;
  hooks = with;
  executorch::runtime::runtime_init();
  executorch::runtime::PalImpl pal{};
  pal.emit_log_message = keep_log_message;
  pal.abort = end_on_abort;
  pal.source_filename = __FILE__;
  executorch::runtime::register_pal(pal);
}

std::string last_errors() {
  const std::lock_guard<std::mutex> hold(kept_errors_lock);
  std::string all;
  for (const std::string& message : kept_errors) all += (all.empty() ? "" : "; ") + message;
  kept_errors.clear();
  return all.empty() ? "" : " (" + all + ")";
}

std::string explain(executorch::runtime::Error error) {
  std::string name = executorch::runtime::to_string(error);
  if (name.rfind("Error::", 0) == 0) name.erase(0, 7);
  char number[16];
  std::snprintf(number, sizeof number, "0x%x", static_cast<unsigned>(error));
  return text("ExecuTorch error ", name, " ", number, last_errors());
}

int64_t set_threads(int64_t threads) {
  auto* pool = executorch::extension::threadpool::get_threadpool();
  if (pool == nullptr) throw load_failure("the runtime has no thread pool");
  if (threads > 0 && !pool->_unsafe_reset_threadpool(static_cast<uint32_t>(threads))) {
    throw load_failure(text("the runtime cannot make a pool of ", threads, " threads"));
  }
  prepare_thread();
  return static_cast<int64_t>(pool->get_thread_count());
}

void prepare_thread() {
#ifdef ETCLI_OPENMP
  // For operators that use OpenMP without a number of their own.
  omp_set_num_threads(static_cast<int>(executorch::extension::threadpool::get_threadpool()->get_thread_count()));
#endif
}

void share_packed_weights() {
  if (executorch::runtime::get_backend_class("XnnpackBackend") == nullptr) return;
  executorch::runtime::BackendOptions<1> options;
  if (options.set_option("weight_cache_enabled", true) != executorch::runtime::Error::Ok) return;
  const auto error = executorch::runtime::set_option("XnnpackBackend", options.view());
  // Only memory is lost without it.
  if (error != executorch::runtime::Error::Ok) hooks.log(true, text("packed weights are not shared: ", explain(error)));
}

const char* executorch_version() { return ETCLI_EXECUTORCH_VERSION; }
const char* etcli_version() { return ETCLI_VERSION; }

}  // namespace etcli
