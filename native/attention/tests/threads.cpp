// Threads: that they run, and that the result does not show how many there were.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>

#include <executorch/runtime/kernel/thread_parallel_interface.h>

#include "../../testing/pool.h"
#include "../run.h"
#include "../versions.h"
#include "example.h"

using namespace etcli::attention;

// The reference kernel, which also notes who ran it and waits until a second thread has come, so that one cannot do all the work.
static std::atomic<int> arrived{0};
static std::vector<std::atomic<std::thread::id>> callers(64);

static void attend_and_tell(const Call& call, const Item& item, const Partial& result, float* rotated) {
  const int index = arrived.fetch_add(1);
  callers[static_cast<size_t>(index % 64)] = std::this_thread::get_id();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (arrived.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  attend_reference(call, item, result, rotated);
}

static void run_on(Example& example, Attend attend, int64_t threads) {
  const Call call = example.call();
  const Plan plan(call);
  std::vector<float> scratch(static_cast<size_t>(scratch_floats(call, plan, threads)));
  run(call, plan, attend, threads, scratch.data());
}

TEST_CASE("two threads run") {
  REQUIRE(set_pool(2));
  REQUIRE(executorch::extension::get_thread_count() == 2);
  arrived = 0;
  Example example({1, 1, 500, 9, 3, 64, 512}, 2);
  run_on(example, attend_and_tell, 2);
  REQUIRE(arrived == 12);  // 3 KV heads, 4 blocks of 128
  std::set<std::thread::id> who;
  for (size_t i = 0; i < 12; ++i) who.insert(callers[i].load());
  CHECK(who.size() == 2);
}

TEST_CASE("the bits are the same for every number of threads") {
  const Sizes all[] = {{1, 1, 500, 9, 3, 64, 512}, {1, 1, 130, 8, 8, 128, 256}, {128, 100, 200, 9, 3, 64, 512}, {32, 32, 0, 8, 2, 80, 99}, {1, 1, 5000, 4, 4, 32, 5001}};
  for (const Version& version : usable_versions()) {
    for (const Sizes& sizes : all) {
      CAPTURE(version.name);
      CAPTURE(sizes.start);
      const Example before(sizes, 4);
      Example one = before;
      run_on(one, version.attend, 1);
      for (const uint32_t threads : {2u, 3u, 4u}) {
        REQUIRE(set_pool(threads));
        Example several = before;
        run_on(several, version.attend, threads);
        CHECK(several.out == one.out);
        CHECK(difference(several.key_cache, {one.key_cache.begin(), one.key_cache.end()}) == 0.0);
        CHECK(difference(several.value_cache, {one.value_cache.begin(), one.value_cache.end()}) == 0.0);
      }
    }
  }
}
