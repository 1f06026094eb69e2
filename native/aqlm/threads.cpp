#include "threads.h"

#include <algorithm>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

#if !defined(ET_USE_THREADPOOL)
#error "without ET_USE_THREADPOOL there is no telling the size of the thread pool"
#endif
#if defined(ETCLI_OPENMP) && !defined(_OPENMP)
#error "ETCLI_OPENMP without -fopenmp would leave one thread"
#endif

namespace etcli::aqlm {

int64_t thread_count() { return std::max<int64_t>(1, executorch::extension::get_thread_count()); }

void in_parallel(int64_t threads, void (*work)(void* context, int64_t thread), void* context) {
#if defined(ETCLI_OPENMP)
  // Fewer may come than were asked for, which a loop does not mind.
#pragma omp parallel for schedule(static, 1) num_threads(static_cast<int>(threads))
  for (int64_t thread = 0; thread < threads; ++thread) work(context, thread);
#else
  executorch::extension::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) work(context, thread);
  });
#endif
}

}  // namespace etcli::aqlm
