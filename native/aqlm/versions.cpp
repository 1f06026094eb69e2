#include "versions.h"

namespace etcli::aqlm {

std::vector<Version> usable_versions() {
  std::vector<Version> versions = {{"reference", {{1, 1, reference}}}, {"baseline", {kernels_baseline[0], kernels_baseline[1]}}};
#if defined(__x86_64__)
  // What the compiler's runtime says takes into account whether the system saves the registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f");
  const bool bytes = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx2) versions.push_back({"avx2", {kernels_avx2[0], kernels_avx2[1]}});
  if (avx512) versions.push_back({"avx512", {kernels_avx2[0], kernels_avx2[1], kernels_avx512[0]}});
  if (avx512 && bytes && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni")) {
    versions.push_back({"avx512vbmi", {kernels_avx512vbmi[0], kernels_avx2[1], kernels_avx512[0]}});
  }
#elif defined(__aarch64__)
  versions.push_back({"neon", {kernels_neon_one_token[0], kernels_neon_tokens[0], kernels_neon_tokens[1]}});
#endif
  return versions;
}

const Version& best_version() {
  static const Version best = usable_versions().back();
  return best;
}

}  // namespace etcli::aqlm
