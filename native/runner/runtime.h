// The ExecuTorch runtime as both programs use it: its log, its threads, its backends.
#pragma once

#include <cstdint>
#include <string>

#include <executorch/runtime/core/error.h>

namespace etcli {

// Starts the runtime and takes over its log: errors (and with `verbose` the rest) go to stderr, the latest errors are kept for
// last_errors(), and an abort inside the runtime ends the program with an `error` event and status 5 instead of a bare SIGABRT.
void start_runtime(bool verbose);

// The error messages that the runtime has logged since the last call, newest last; empty without any. In parentheses, with a blank
// before, so that it can follow a message.
std::string last_errors();

// What an error of the runtime means, as "InvalidProgram (0x23)", with the log's explanation.
std::string explain(executorch::runtime::Error error);

// Threads that the CPU backends and kernels use; 0 leaves the runtime's choice. Call before a method is loaded, because delegates keep
// the pool that they find. Returns the number in use.
int64_t set_threads(int64_t threads);

// Lets XNNPACK keep packed weights once for all methods that use the same data, which halves the memory of a program with a prompt
// method and a generation method. Weights are known by the hash of their bytes. Call before a method is loaded.
void share_packed_weights();

// "1.5.1" and the like, the release that the program was built with.
const char* executorch_version();
const char* etcli_version();

}  // namespace etcli
