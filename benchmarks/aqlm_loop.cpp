// The straightforward loop with OpenMP's threads, as a plain C library: a contender of aqlm_kernels.py, compiled with several sets of flags.
//
// Tables of all groups first; then each thread has outputs of its own, so that no two write the same. The loops themselves are those that
// native/aqlm/tests compares with too.
#include <vector>

#define ETCLI_LOOP straightforward_loop
#define ETCLI_LOOP_TABLES straightforward_tables
#include "loop.inc"

using etcli::aqlm::Call;
using etcli::aqlm::kEntries;
using etcli::aqlm::kGroup;

// Arrays as in aqlm_bench_run of native/aqlm/tests/bench_library.cpp. Working memory is kept from call to call.
extern "C" [[gnu::visibility("default")]] void aqlm_loop_run(int threads, int64_t tokens, int64_t groups, int64_t outputs, int64_t books,
                                                             const float* input, const uint8_t* codes, const float* codebooks,
                                                             const float* scales, const float* bias, float* output) {
  const Call call{tokens, groups, outputs, books, input, codes, codebooks, scales, bias, output};
  static std::vector<float> tables, transposed;
  const int64_t entries = books * kEntries;
  tables.resize(static_cast<size_t>(groups * entries));
  transposed.resize(static_cast<size_t>(entries * kGroup));
  for (int64_t k = 0; k < kGroup; ++k) {
    for (int64_t entry = 0; entry < entries; ++entry) transposed[static_cast<size_t>(k * entries + entry)] = codebooks[entry * kGroup + k];
  }
  for (int64_t token = 0; token < tokens; ++token) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) {
      etcli::aqlm::straightforward_tables(call, token, transposed.data(), tables.data(), groups * thread / threads, groups * (thread + 1) / threads);
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int thread = 0; thread < threads; ++thread) {
      etcli::aqlm::straightforward_loop(call, token, tables.data(), outputs * thread / threads, outputs * (thread + 1) / threads);
    }
  }
}
