// The NPU's performance lock.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "fixture.h"

using fixture::Loaded;

TEST_CASE("delegates share a lock, which is given back with the last of them") {
  auto* fake = fixture::state_of<FakePerformance>({"libapuwareutils_v2.mtk.so"}, "fake_performance");
  REQUIRE(fake != nullptr);
  for (int round = 1; round <= 3; ++round) {
    {
      const Loaded one(fixture::blob({16}, {16}));
      {
        const Loaded other(fixture::blob({16}, {16}));
        const Loaded refused("damaged");
      }
      CHECK(fake->releases == round - 1);
      // Long enough for the thread to start on any machine that runs at all; the counts are read once it has ended.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    CHECK(fake->releases <= round);
    CHECK(fake->acquisitions >= fake->releases);
  }
  CHECK(fake->acquisitions >= 1);
  CHECK(fake->last_mode == 1);
  CHECK(fake->last_milliseconds == 2000);
  CHECK(fake->last_handle == 77);
}
