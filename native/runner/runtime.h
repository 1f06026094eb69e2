// The ExecuTorch runtime as programs and the library for apps use it: its log, its threads, its backends.
#pragma once

#include <cstdint>
#include <string>

#include <executorch/runtime/core/error.h>

namespace etcli {

// What becomes of the runtime's words, which are valid UTF-8, and of a check that fails inside it.
struct RuntimeHooks {
  void (*log)(bool is_error, const std::string& line);
  void (*on_abort)();  // does not return
};

// Starts the runtime and takes over its log: errors (and with `verbose` the rest) go to `hooks.log`, the latest errors are kept for
// last_errors(). Any thread may log. Call once, before anything else here.
void start_runtime(bool verbose, const RuntimeHooks& hooks);

// The error messages that the runtime has logged since the last call, newest last; empty without any. In parentheses, with a blank
// before, so that it can follow a message.
std::string last_errors();

// What an error of the runtime means, as "InvalidProgram (0x23)", with the log's explanation.
std::string explain(executorch::runtime::Error error);

// Threads that the CPU backends and kernels use; 0 leaves the runtime's choice. Call before a method is loaded, because delegates keep
// the pool that they find. Returns the number in use.
int64_t set_threads(int64_t threads);

// Prepares the calling thread for running programs: operators with OpenMP will use as many threads as the pool has. set_threads does it
// for its own caller.
void prepare_thread();

// Lets XNNPACK keep packed weights once for all methods that use the same data, which halves the memory of a program with a prompt
// method and a generation method. Weights are known by the hash of their bytes. Call before a method is loaded.
void share_packed_weights();

// "1.5.1" and the like, the release that the program was built with.
const char* executorch_version();
const char* etcli_version();

}  // namespace etcli
