// Networks compute what PyTorch computes.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "network.h"

TEST_CASE("a network computes what PyTorch computes, from data at any address") {
  for (const int tokens : {2, 1}) {
    Restored network(file_bytes("network_" + std::to_string(tokens) + ".bin"));
    Example example(tokens);
    REQUIRE(network.restore() == vendor::kOk);
    REQUIRE(example.bind(network) == vendor::kOk);
    REQUIRE(network.a.compute(network.execution) == vendor::kOk);
    CHECK(example.new_cache == example.expected_cache);
    CHECK(Example::close(example.y, example.expected_y));
  }
}

TEST_CASE("what is bound is read again at every computation") {
  Restored network(file_bytes("network_1.bin"));
  Example example(1), again(1);
  REQUIRE(network.restore() == vendor::kOk);
  for (float& value : example.x) value = 0;
  REQUIRE(example.bind(network) == vendor::kOk);
  REQUIRE(network.a.compute(network.execution) == vendor::kOk);
  CHECK_FALSE(Example::close(example.y, example.expected_y));
  example.x = again.x;  // the same memory
  REQUIRE(network.a.compute(network.execution) == vendor::kOk);
  CHECK(example.new_cache == example.expected_cache);
  CHECK(Example::close(example.y, example.expected_y));
}

TEST_CASE("an output may be where an input is, also when the input is read after the output is known") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  REQUIRE(example.bind(network, /*in_place=*/true) == vendor::kOk);
  REQUIRE(network.a.compute(network.execution) == vendor::kOk);
  CHECK(example.cache == example.expected_cache);
  CHECK(Example::close(example.y, example.expected_y));
}

TEST_CASE("outputs that overlap one another, or an input in part, are refused") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  REQUIRE(network.a.set_output(network.execution, 1, nullptr, example.new_cache.data() + 2, 24) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kBadData);
  REQUIRE(network.a.set_output(network.execution, 1, nullptr, example.cache.data() + 2, 24) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kBadData);
  REQUIRE(example.bind(network) == vendor::kOk);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
}

TEST_CASE("networks without weights take the shared ones as their last input") {
  const Unaligned shared(file_bytes("shared.bin"));
  Restored prompt(file_bytes("slim_2.bin")), generation(file_bytes("slim_1.bin"));
  for (Restored* network : {&prompt, &generation}) {
    Example example(network == &prompt ? 2 : 1);
    REQUIRE(network->restore(3) == vendor::kOk);
    REQUIRE(example.bind(*network) == vendor::kOk);
    CHECK(network->a.compute(network->execution) == vendor::kBadData);  // not set
    REQUIRE(network->a.set_input(network->execution, 2, nullptr, shared.data(), shared.size()) == vendor::kOk);
    REQUIRE(network->a.compute(network->execution) == vendor::kOk);
    CHECK(example.new_cache == example.expected_cache);
    CHECK(Example::close(example.y, example.expected_y));
  }
}

TEST_CASE("shared weights of another network are refused, and leave those that were there") {
  const std::vector<char> shared = file_bytes("shared.bin"), other = file_bytes("other_shared.bin");
  Restored network(file_bytes("slim_1.bin"));
  Example example(1);
  REQUIRE(network.restore(3) == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  CHECK(network.a.set_input(network.execution, 2, nullptr, other.data(), other.size()) == vendor::kBadData);
  CHECK(network.a.compute(network.execution) == vendor::kBadData);
  REQUIRE(network.a.set_input(network.execution, 2, nullptr, shared.data(), shared.size()) == vendor::kOk);
  CHECK(network.a.set_input(network.execution, 2, nullptr, other.data(), other.size()) == vendor::kBadData);
  CHECK(network.a.compute(network.execution) == vendor::kOk);
  CHECK(Example::close(example.y, example.expected_y));
}

TEST_CASE("several threads restore and run networks of their own") {
  const std::vector<char> shared = file_bytes("shared.bin");
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 4; ++round) {
        const int tokens = 1 + t % 2;
        Restored network(file_bytes("slim_" + std::to_string(tokens) + ".bin"));
        Example example(tokens);
        if (network.restore(3) != vendor::kOk || example.bind(network) != vendor::kOk) return;
        if (network.a.set_input(network.execution, 2, nullptr, shared.data(), shared.size()) != vendor::kOk) return;
        if (network.a.compute(network.execution) != vendor::kOk) return;
        if (example.new_cache == example.expected_cache && Example::close(example.y, example.expected_y)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 16);
}

TEST_CASE("an execution that another thread uses is refused, and computes for the other one") {
  Restored network(file_bytes("network_2.bin"));
  Example example(2);
  REQUIRE(network.restore() == vendor::kOk);
  REQUIRE(example.bind(network) == vendor::kOk);
  std::atomic<int> computed{0}, refused{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const int code = network.a.compute(network.execution);
        ++(code == vendor::kOk ? computed : code == vendor::kBadState ? refused : wrong);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(computed > 0);
  CHECK(computed + refused == 600);
  CHECK(Example::close(example.y, example.expected_y));
}
