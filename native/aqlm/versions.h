// The versions: for each kind of CPU the kernels that serve it best, narrowest first.
#pragma once

#include <vector>

#include "aqlm.h"

namespace etcli::aqlm {

// What each source offers. Kernels are named for the tokens that they serve at a time.
void reference(const Call& call, const Item& item, float* sums);  // one token
extern const Kernel kernels_baseline[2];                          // one token, four
#if defined(__x86_64__)
extern const Kernel kernels_avx2[2];        // one token, eight
extern const Kernel kernels_avx512[1];      // sixteen
extern const Kernel kernels_avx512vbmi[1];  // one token
#elif defined(__aarch64__)
extern const Kernel kernels_neon_one_token[1];
extern const Kernel kernels_neon_tokens[2];  // four, eight
#endif

struct Version {
  const char* name;
  std::vector<Kernel> kernels;  // of rising width; the first serves one token
};

// Every version that this CPU can run, slowest first; the reference is always there.
std::vector<Version> usable_versions();

// The fastest of them, chosen once.
const Version& best_version();

}  // namespace etcli::aqlm
