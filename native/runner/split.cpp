#include "split.h"

#include <algorithm>

namespace etcli {

std::vector<Call> split_prompt(int64_t length, const std::vector<int64_t>& shapes, bool may_pad) {
  struct Best {
    int64_t cost = 0, calls = 0, size = 0;  // of the cheapest split, and one shape of it
  };
  std::vector<Best> cheapest(static_cast<size_t>(length) + 1);
  for (int64_t wanted = 1; wanted <= length; ++wanted) {
    Best& best = cheapest[static_cast<size_t>(wanted)];
    for (int64_t size : shapes) {
      if (size > wanted && !may_pad) continue;
      const Best& rest = cheapest[static_cast<size_t>(std::max<int64_t>(0, wanted - size))];
      const Best candidate{rest.cost + size + call_rows, rest.calls + 1, size};
      if (best.size == 0 || candidate.cost < best.cost || (candidate.cost == best.cost && candidate.calls < best.calls)) {
        best = candidate;
      }
    }
  }
  std::vector<Call> calls;
  int64_t rest = length;
  for (; rest > 0; rest -= calls.back().tokens) calls.push_back({cheapest[static_cast<size_t>(rest)].size, 0});
  std::sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.tokens < b.tokens; });
  calls.front().padding = -rest;
  return calls;
}

}  // namespace etcli
