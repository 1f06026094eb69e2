// What one call takes in each version of the kernel, in microseconds: the median of many.
//
//   attention_speed [THREADS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "../../testing/pool.h"
#include "../run.h"
#include "../versions.h"
#include "example.h"

using namespace etcli::attention;

static double microseconds(Example& example, Attend attend, int64_t threads) {
  const Call call = example.call();
  const Plan plan(call);
  std::vector<float> scratch(static_cast<size_t>(scratch_floats(call, plan, threads)));
  std::vector<double> taken;
  const auto begin = std::chrono::steady_clock::now();
  while (taken.size() < 5 || std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200)) {
    const auto start = std::chrono::steady_clock::now();
    run(call, plan, attend, threads, scratch.data());
    taken.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(taken.begin(), taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2), taken.end());
  return taken[taken.size() / 2];
}

int main(int count, char** words) {
  const long threads = count > 1 ? std::strtol(words[1], nullptr, 10) : 1;
  if (threads < 1 || !set_pool(static_cast<uint32_t>(threads))) return 2;
  const Sizes all[] = {{1, 1, 64, 9, 3, 64, 512},    {1, 1, 256, 9, 3, 64, 512},   {1, 1, 500, 9, 3, 64, 512},  {128, 128, 0, 9, 3, 64, 512},
                       {128, 128, 384, 9, 3, 64, 512}, {1, 1, 2000, 32, 8, 64, 2048}, {1, 1, 500, 8, 8, 128, 512}};
  std::printf("%-40s", "T x from, heads / KV heads x D, C");
  for (const Version& version : usable_versions()) std::printf("%12s", version.name);
  std::printf("   us, %ld threads\n", threads);
  for (const Sizes& s : all) {
    Example example(s);
    char name[80];
    std::snprintf(name, sizeof name, "%d x from %d, %d / %d x %d, %d", static_cast<int>(s.valid), static_cast<int>(s.start), static_cast<int>(s.heads),
                  static_cast<int>(s.kv_heads), static_cast<int>(s.head_dim), static_cast<int>(s.slots));
    std::printf("%-40s", name);
    for (const Version& version : usable_versions()) std::printf("%12.1f", microseconds(example, version.attend, threads));
    std::printf("\n");
  }
}
