// Threads for the kernels: ExecuTorch's thread pool, or OpenMP where that was chosen when compiling.
#pragma once

#include <cstdint>

namespace etcli::aqlm {

// The size of ExecuTorch's thread pool, which a program's user sets; OpenMP gets as many.
int64_t thread_count();

// A Parallel (run.h).
void in_parallel(int64_t threads, void (*work)(void* context, int64_t thread), void* context);

}  // namespace etcli::aqlm
