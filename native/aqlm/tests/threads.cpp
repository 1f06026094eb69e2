// Threads: that they run, and that the result does not show how many there were.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "../../testing/pool.h"
#include "../threads.h"
#include "example.h"

using namespace etcli::aqlm;

// The reference kernel, which also notes who ran it and waits until a second thread has come, so that one cannot do all the work.
static std::atomic<int> arrived{0};
static std::vector<std::atomic<std::thread::id>> callers(64);

static void accumulate_and_tell(const Call& call, const Item& item, float* sums) {
  const int index = arrived.fetch_add(1);
  callers[static_cast<size_t>(index % 64)] = std::this_thread::get_id();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (arrived.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  reference(call, item, sums);
}

static void run_on(Example& example, const Version& version, int64_t threads) {
  const Call call = example.call();
  const Plan plan(call, version);
  const Scratch scratch(scratch_bytes(plan, threads));
  run(call, plan, threads, scratch.memory.get(), in_parallel);
}

TEST_CASE("two threads run, on spans of one cell and on cells") {
  REQUIRE(set_pool(2));
  REQUIRE(thread_count() == 2);
  for (const Shape& shape : {Shape{1, 512, 300, 2, false}, Shape{20, 40, 300, 2, false}}) {
    arrived = 0;
    Example example(shape, 2);
    run_on(example, {"telling", {{1, 1, accumulate_and_tell}}}, 2);
    REQUIRE(arrived >= 16);
    std::set<std::thread::id> who;
    for (int i = 0; i < arrived; ++i) who.insert(callers[static_cast<size_t>(i)].load());
    CHECK(who.size() == 2);
    CHECK(error_of(example.out, expected(example), shape.tokens) < 5e-6);
  }
}

TEST_CASE("the bits are the same for every number of threads") {
  const Shape all[] = {{1, 512, 300, 2, true}, {1, 131, 2500, 1, false}, {2, 300, 200, 2, true}, {5, 131, 300, 2, false},
                       {3, 70, 9000, 2, false}, {33, 100, 100, 2, true}, {300, 20, 90, 2, true}};
  for (const uint32_t threads : {2u, 3u, 4u}) {
    REQUIRE(set_pool(threads));
    for (const Version& version : usable_versions()) {
      for (const Shape& shape : all) {
        CAPTURE(version.name);
        CAPTURE(shape.tokens);
        CAPTURE(shape.groups);
        const Example before(shape, 4);
        Example one = before;
        run_on(one, version, 1);
        for (int repeat = 0; repeat < 3; ++repeat) {
          Example several = before;
          run_on(several, version, threads);
          CHECK(several.out == one.out);
        }
      }
    }
  }
}

TEST_CASE("threads that never come are not waited for") {
  const auto only_one = [](int64_t, void (*work)(void*, int64_t), void* context) { work(context, 1); };
  const auto none = [](int64_t, void (*)(void*, int64_t), void*) {};
  for (const Shape& shape : {Shape{1, 512, 300, 2, true}, Shape{300, 20, 90, 2, true}}) {
    const Example before(shape, 5);
    Example alone = before, one = before, no_one = before;
    run_on(alone, best_version(), 1);
    const Call call = one.call();
    const Plan plan(call, best_version());
    const Scratch scratch(scratch_bytes(plan, 4));
    run(call, plan, 4, scratch.memory.get(), only_one);
    run(no_one.call(), plan, 4, scratch.memory.get(), none);
    CHECK(one.out == alone.out);
    CHECK(no_one.out == alone.out);
  }
}
