#include "versions.h"

namespace etcli::attention {

std::vector<Version> usable_versions() {
  std::vector<Version> versions = {{"reference", attend_reference}, {"baseline", attend_baseline}};
#if defined(__x86_64__)
  // What the compiler's runtime says takes into account whether the system saves the registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) versions.push_back({"avx2", attend_avx2});
  if (avx2 && __builtin_cpu_supports("avx512f")) versions.push_back({"avx512", attend_avx512});
#endif
  return versions;
}

const Version& best_version() {
  static const Version best = usable_versions().back();
  return best;
}

}  // namespace etcli::attention
