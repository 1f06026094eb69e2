// The NPU's performance lock.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "fixture.h"

using fixture::Loaded;

TEST_CASE("fault 28: delegates share a lock, whose thread ends and which is given back with the last of them") {
  auto* fake = fixture::state_of<FakePerformance>({"libapuwareutils_v2.mtk.so"}, "fake_performance");
  REQUIRE(fake != nullptr);
  for (int round = 0; round < 3; ++round) {
    const int acquired = fake->acquisitions, released = fake->releases;
    {
      const Loaded one(fixture::blob({16}, {16}));
      {
        const Loaded other(fixture::blob({16}, {16}));
        const Loaded refused("damaged");
        CHECK(!refused.has_value);
      }
      for (int i = 0; i < 1000 && fake->acquisitions == acquired; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      CHECK(fake->acquisitions > acquired);
      CHECK(fake->releases == released);
      CHECK(fake->last_mode == 1);
      CHECK(fake->last_milliseconds == 2000);
    }
    CHECK(fake->releases == released + 1);
    CHECK(fake->last_handle == 77);
    const int after = fake->acquisitions;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(fake->acquisitions == after);
  }
}

TEST_CASE("fault 28: a delegate that ends before its thread ran is whole") {
  for (int round = 0; round < 50; ++round) {
    const Loaded brief(fixture::blob({16}, {16}));
    CHECK(brief.has_value);
  }
}
