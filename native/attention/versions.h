// The versions of the kernel: one source compiled for several instruction sets, and the reference.
#pragma once

#include <vector>

#include "attention.h"

namespace etcli::attention {

void attend_reference(const Call& call, const Item& item, const Partial& result, float* rotated);
void attend_baseline(const Call& call, const Item& item, const Partial& result, float* rotated);
#if defined(__x86_64__)
void attend_avx2(const Call& call, const Item& item, const Partial& result, float* rotated);
void attend_avx512(const Call& call, const Item& item, const Partial& result, float* rotated);
#endif

struct Version {
  const char* name;
  Attend attend;
};

// Every version that this CPU can run, slowest first; the reference is always there.
std::vector<Version> usable_versions();

// The fastest of them, chosen once.
const Version& best_version();

}  // namespace etcli::attention
