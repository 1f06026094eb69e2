// The C interface: arguments checked, failures turned into a status, one call at a time. What it stands on is native/runner.
#include "etcli_runner.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "clock.h"
#include "failure.h"
#include "generate.h"
#include "log.h"
#include "model.h"
#include "runtime.h"

using namespace etcli;

struct etcli_runner {
  etcli_runner(Config config, int64_t with_threads) : model(std::move(config)), session(model), threads(with_threads) {}

  Model model;
  Session session;
  int64_t threads;
  double load_seconds = 0;
  std::mutex running;                     // held while a call uses the model
  std::atomic<std::thread::id> caller{};  // who holds it
  std::atomic<bool> is_stopped{false};
};

namespace {

struct LastError {
  std::string message;
  const char* code = "";  // a literal
};
thread_local LastError last_error;

Failure busy_failure() { return {"runner.busy", ETCLI_RUNNER_BUSY, "another call runs in this runner"}; }

// Of the whole process: the runtime is started once, and the pool of threads is one for all runners.
std::mutex process_lock;
int64_t loaded_runners = 0;

// `work` with every failure kept for the thread and turned into a status.
template <class Work>
etcli_runner_status guarded(const Work& work) {
  const auto keep = [](const char* code, int status, const char* message) {
    try {
      last_error.message = message;
    } catch (...) {
      last_error.message.clear();
    }
    last_error.code = code;
    return static_cast<etcli_runner_status>(status);
  };
  try {
    return work();
  } catch (const Failure& failure) {
    return keep(failure.code, failure.status, failure.what());
  } catch (const std::bad_alloc&) {
    return keep("runner.memory", ETCLI_RUNNER_LOAD, "out of memory");
  } catch (const std::exception& unexpected) {
    return keep("runner.execute", ETCLI_RUNNER_EXECUTE, unexpected.what());
  } catch (...) {
    return keep("runner.execute", ETCLI_RUNNER_EXECUTE, "an exception of an unknown kind");
  }
}

// The runner is this call's alone for as long as the object lives. Throws Failure "runner.busy", or "runner.usage" without a runner.
struct Call {
  explicit Call(etcli_runner* of) : runner(of) {
    if (runner == nullptr) throw usage_failure("no runner: it is NULL");
    // Asked first, because a thread must not try to take a mutex that it holds.
    if (runner->caller == std::this_thread::get_id() || !runner->running.try_lock()) throw busy_failure();
    runner->caller = std::this_thread::get_id();
  }
  ~Call() {
    runner->caller = std::thread::id();
    runner->running.unlock();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  etcli_runner* runner;
};

// The caller's struct as this library knows it: members that the caller has not keep their defaults.
template <class Struct>
Struct given(const Struct* options, const Struct& defaults) {
  Struct all = defaults;
  if (options == nullptr) return all;
  if (options->size < sizeof(size_t)) throw usage_failure("a struct whose size is not set: begin with its _INIT macro");
  std::memcpy(&all, options, std::min(options->size, sizeof all));
  return all;
}

// As much of `all` as the caller has room for.
template <class Struct>
void give(const Struct& all, Struct* out) {
  if (out == nullptr) throw usage_failure("no place for the answer: it is NULL");
  const size_t size = out->size;
  if (size < sizeof(size_t)) throw usage_failure("a struct whose size is not set: begin with its _INIT macro");
  std::memcpy(out, &all, std::min(size, sizeof all));
  out->size = size;
}

void start_once(bool verbose) {
  static const bool started = [verbose] {
    start_runtime(verbose, {log_line, [] { log_line(true, "the ExecuTorch runtime gave up" + last_errors()); }});
    share_packed_weights();
    return true;
  }();
  (void)started;
}

// Delegates keep the pool that they find when they are loaded, so its size may change only while nothing is.
int64_t threads_for_load(int64_t wanted) {
  if (loaded_runners == 0) return set_threads(wanted);
  const int64_t have = set_threads(0);
  if (wanted != 0 && wanted != have) {
    throw usage_failure(text(wanted, " threads are asked for, and runners that are loaded use ", have, ": free them first"));
  }
  return have;
}

// Throws Failure "runner.usage" for a number outside of its range, which NaN is too.
double within(const char* name, double value, double most) {
  if (!(0 <= value && value <= most)) throw usage_failure(text(name, " is ", value, ", 0 to ", most, " are possible"));
  return value;
}

Sampling sampling_of(const etcli_runner_decode_options& options) {
  return {within("temperature", options.temperature, 1000), within("top_p", options.top_p, 1), options.seed};
}

etcli_runner_reason reason_of(const std::string& word) {
  if (word == "stop_id") return ETCLI_RUNNER_STOP_ID;
  if (word == "max_new_tokens") return ETCLI_RUNNER_MAX_NEW_TOKENS;
  if (word == "cache_full") return ETCLI_RUNNER_CACHE_FULL;
  if (word == "stopped") return ETCLI_RUNNER_WAS_STOPPED;
  throw execute_failure(text("decoding ended for a reason that the interface has no name for: ", word));
}

}  // namespace

int32_t etcli_runner_api(void) { return ETCLI_RUNNER_API; }

const char* etcli_runner_version(void) {
  static const std::string version = text(etcli_version(), " (ExecuTorch ", executorch_version(), ")");
  return version.c_str();
}

const char* etcli_runner_last_error(void) { return last_error.message.c_str(); }
const char* etcli_runner_last_code(void) { return last_error.code; }

etcli_runner_status etcli_runner_load(const char* config, const etcli_runner_load_options* options, etcli_runner** runner) {
  if (runner != nullptr) *runner = nullptr;
  return guarded([&] {
    if (config == nullptr || runner == nullptr) throw usage_failure("a configuration and a place for the runner are needed: one is NULL");
    const auto wanted = given<etcli_runner_load_options>(options, ETCLI_RUNNER_LOAD_OPTIONS_INIT);
    if (wanted.threads < 0 || wanted.threads > 1024) throw usage_failure(text("threads is ", wanted.threads, ", 0 to 1024 are possible"));
    Config read = read_config(config);
    const std::lock_guard<std::mutex> hold(process_lock);
    const double start = now();
    start_once(wanted.verbose != 0);
    const int64_t threads = threads_for_load(wanted.threads);
    auto loaded = std::make_unique<etcli_runner>(std::move(read), threads);
    loaded->load_seconds = now() - start;
    ++loaded_runners;
    *runner = loaded.release();
    return ETCLI_RUNNER_OK;
  });
}

etcli_runner_status etcli_runner_free(etcli_runner* runner) {
  return guarded([&] {
    if (runner == nullptr) return ETCLI_RUNNER_OK;
    if (runner->caller == std::this_thread::get_id()) throw busy_failure();
    etcli_runner_stop(runner);
    { const std::lock_guard<std::mutex> wait(runner->running); }
    const std::lock_guard<std::mutex> hold(process_lock);
    delete runner;
    --loaded_runners;
    return ETCLI_RUNNER_OK;
  });
}

etcli_runner_status etcli_runner_get_info(etcli_runner* runner, etcli_runner_info* info) {
  return guarded([&] {
    const Call call(runner);
    const Config& config = runner->model.config;
    give<etcli_runner_info>({sizeof *info, static_cast<int32_t>(config.vocab_size), static_cast<int32_t>(config.cache_length),
                             static_cast<int32_t>(runner->session.room()), static_cast<int32_t>(runner->threads)},
                            info);
    return ETCLI_RUNNER_OK;
  });
}

etcli_runner_status etcli_runner_reset(etcli_runner* runner) {
  return guarded([&] {
    const Call call(runner);
    runner->session.reset();
    return ETCLI_RUNNER_OK;
  });
}

etcli_runner_status etcli_runner_prefill(etcli_runner* runner, const int32_t* ids, size_t count) {
  return guarded([&] {
    const Call call(runner);
    if (ids == nullptr && count > 0) throw usage_failure("ids is NULL");
    runner->is_stopped = false;
    prepare_thread();
    const bool is_done = runner->session.prefill({ids, ids + count}, [runner] { return !runner->is_stopped; });
    if (is_done) return ETCLI_RUNNER_OK;
    runner->is_stopped = false;
    throw Failure("runner.stopped", ETCLI_RUNNER_STOPPED, "the prompt was stopped");
  });
}

etcli_runner_status etcli_runner_decode(etcli_runner* runner, const etcli_runner_decode_options* options, etcli_runner_on_token on_token,
                                        void* user, etcli_runner_reason* reason) {
  if (reason != nullptr) *reason = ETCLI_RUNNER_NO_REASON;
  return guarded([&] {
    const Call call(runner);
    const auto wanted = given<etcli_runner_decode_options>(options, ETCLI_RUNNER_DECODE_OPTIONS_INIT);
    if (wanted.max_new_tokens < 1) throw usage_failure(text("max_new_tokens is ", wanted.max_new_tokens, ", it is at least 1"));
    runner->session.sampler.sampling = sampling_of(wanted);
    GenerateOptions generate;
    generate.max_new_tokens = wanted.max_new_tokens;
    generate.ignore_stop_ids = wanted.ignore_stop_ids != 0;
    bool is_enough = false;  // for the callback
    generate.go_on = [&] { return !is_enough && !runner->is_stopped; };
    prepare_thread();
    runner->session.decode(generate, [&](int64_t index, int64_t id, double) {
      is_enough = on_token != nullptr && on_token(user, static_cast<int32_t>(id), index) != 0;
    });
    const etcli_runner_reason ended = reason_of(runner->session.stats.stop_reason);
    if (ended == ETCLI_RUNNER_WAS_STOPPED && !is_enough) runner->is_stopped = false;
    if (reason != nullptr) *reason = ended;
    return ETCLI_RUNNER_OK;
  });
}

void etcli_runner_stop(etcli_runner* runner) {
  if (runner != nullptr) runner->is_stopped = true;
}

etcli_runner_status etcli_runner_get_stats(etcli_runner* runner, etcli_runner_stats* stats) {
  return guarded([&] {
    const Call call(runner);
    const GenerateStats& seen = runner->session.stats;
    give<etcli_runner_stats>({sizeof *stats, seen.prompt_tokens, seen.new_tokens, seen.decode_steps, runner->load_seconds, seen.prefill_seconds,
                              seen.decode_seconds},
                             stats);
    return ETCLI_RUNNER_OK;
  });
}
