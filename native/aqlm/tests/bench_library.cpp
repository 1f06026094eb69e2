// The kernels as a plain C library, for programs that compare versions (benchmarks/aqlm_kernels.py) or check them from elsewhere. Its
// threads are OpenMP's.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "../run.h"

namespace {

using namespace etcli::aqlm;

void in_openmp(int64_t threads, void (*work)(void* context, int64_t thread), void* context) {
#pragma omp parallel for schedule(static, 1) num_threads(static_cast<int>(threads))
  for (int64_t thread = 0; thread < threads; ++thread) work(context, thread);
}

const Version* find(const char* name) {
  static const std::vector<Version> versions = usable_versions();
  for (const Version& version : versions) {
    if (std::strcmp(version.name, name) == 0) return &version;
  }
  return nullptr;
}

}  // namespace

extern "C" {

// Names of the versions that this CPU can run, slowest first, with commas between them.
[[gnu::visibility("default")]] const char* aqlm_bench_versions() {
  static const std::string names = [] {
    std::string all;
    for (const Version& version : usable_versions()) all += (all.empty() ? "" : ",") + std::string(version.name);
    return all;
  }();
  return names.c_str();
}

// One call (Call in ../aqlm.h says what the arrays are; bias may be null). Working memory is kept from call to call, one calling thread at
// a time. Returns 0, or 1 where the version is unknown, a size is wrong or there is no memory.
[[gnu::visibility("default")]] int aqlm_bench_run(const char* version, int threads, int64_t tokens, int64_t in_groups, int64_t outputs,
                                                  int64_t codebooks_count, const float* input, const uint8_t* codes, const float* codebooks,
                                                  const float* scales, const float* bias, float* output) {
  const Version* const found = find(version);
  if (found == nullptr || threads < 1 || tokens < 0 || in_groups < 0 || outputs < 0 || codebooks_count < 1 || codebooks_count > 2) return 1;
  const Call call{tokens, in_groups, outputs, codebooks_count, input, codes, codebooks, scales, bias, output};
  const Plan plan(call, *found);
  static struct {
    std::unique_ptr<void, decltype(&std::free)> memory{nullptr, std::free};
    size_t bytes = 0;
  } kept;
  const size_t bytes = scratch_bytes(plan, threads);
  if (bytes > kept.bytes) {
    kept.memory.reset(std::aligned_alloc(kAlignment, bytes));
    kept.bytes = kept.memory ? bytes : 0;
    if (!kept.memory) return 1;
  }
  run(call, plan, threads, kept.memory.get(), in_openmp);
  return 0;
}

}  // extern "C"
