#include "contract.h"

#include <doctest/doctest.h>

#include <limits>

#include "failing.h"

using namespace etcli;
using executorch::aten::ScalarType;

namespace {

Config small() {
  Config config;
  config.hidden_size = 64;
  config.head_dim = 16;
  config.num_kv_heads = 2;
  config.vocab_size = 160;
  config.cache_length = 24;
  return config;
}

// Facts of a method that has exactly what is needed.
std::vector<TensorFacts> fitting(const std::vector<TensorNeed>& needs) {
  std::vector<TensorFacts> all;
  for (const TensorNeed& need : needs) {
    TensorFacts facts;
    facts.is_tensor = true;
    facts.kind = "tensor";
    facts.dtype = need.dtype;
    facts.sizes = need.sizes;
    for (size_t i = 0; i < need.sizes.size(); ++i) facts.dim_order.push_back(static_cast<uint8_t>(i));
    facts.bytes = need.bytes();
    all.push_back(facts);
  }
  return all;
}

std::vector<std::string> problems_of(const Signature& found, const Signature& needs) {
  std::vector<std::string> problems;
  check_tensors("a.pte, method 'm'", fitting(found.inputs), fitting(found.outputs), needs, problems);
  return problems;
}

std::string drawn(const std::vector<TensorNeed>& needs) {
  std::string out;
  for (const TensorNeed& need : needs) out += need.role + " " + dtype_name(need.dtype) + shape_text(need.sizes) + "; ";
  return out;
}

}  // namespace

TEST_CASE("the tensors of shift") {
  const Signature body = contract_of("shift").signature(small(), 1, false, 8), head = contract_of("shift").signature(small(), 2, true, 8);
  CHECK(drawn(body.inputs) ==
        "hidden float32[1, 8, 64]; mask float32[1, 1, 8, 32]; rotary float32[1, 2, 8, 16]; "
        "key cache 0 float32[1, 2, 24, 16]; value cache 0 float32[1, 2, 24, 16]; ");
  CHECK(drawn(body.outputs) == "hidden float32[1, 8, 64]; key cache 0 float32[1, 2, 24, 16]; value cache 0 float32[1, 2, 24, 16]; ");
  CHECK(drawn(head.outputs) ==
        "logits float32[1, 8, 160]; key cache 0 float32[1, 2, 24, 16]; key cache 1 float32[1, 2, 24, 16]; "
        "value cache 0 float32[1, 2, 24, 16]; value cache 1 float32[1, 2, 24, 16]; ");
}

TEST_CASE("the tensors of ring: positions for a mask, logits of one row") {
  const Signature body = contract_of("ring").signature(small(), 1, false, 8), head = contract_of("ring").signature(small(), 1, true, 8);
  CHECK(drawn(body.inputs) ==
        "hidden float32[1, 8, 64]; pos int64[2]; rotary float32[1, 2, 8, 16]; "
        "key cache 0 float32[1, 2, 24, 16]; value cache 0 float32[1, 2, 24, 16]; ");
  CHECK(drawn(body.outputs) == "hidden float32[1, 8, 64]; key cache 0 float32[1, 2, 24, 16]; value cache 0 float32[1, 2, 24, 16]; ");
  CHECK(head.outputs[0].role == "logits");
  CHECK(head.outputs[0].sizes == std::vector<int64_t>{1, 1, 160});
  CHECK(head.outputs[0].bytes() == 640);
  CHECK(head.inputs[1].bytes() == 16);
}

TEST_CASE("padding stands on the left in shift, on the right in ring") {
  const Contract &shift = contract_of("shift"), &ring = contract_of("ring");
  CHECK(shift.first_row(3) == 3);
  CHECK(ring.first_row(3) == 0);
  const float pad[] = {1, 2};
  float row[] = {7, 7};
  shift.fill_padding(row, pad, 2);
  CHECK(row[1] == 2);
  ring.fill_padding(row, pad, 2);
  CHECK((row[0] == 0 && row[1] == 0));

  CHECK(shift.logits_row({8, 5, 3, 0}) == 7);
  CHECK(ring.logits_row({8, 5, 0, 0}) == 0);

  int64_t pos[2] = {-1, -1};
  ring.fill_guide(pos, {8, 5, 0, 11}, 24);
  CHECK((pos[0] == 11 && pos[1] == 5));
  float mask[2 * 6];
  shift.fill_guide(mask, {2, 1, 1, 0}, 4);
  CHECK((mask[10] == -100.0f && mask[11] == 0.0f));
}

TEST_CASE("shift clears caches, ring leaves them alone") {
  Config config = small();
  config.num_kv_heads = 1;
  config.cache_length = 3;
  config.head_dim = 2;
  std::vector<float> cache(6, std::numeric_limits<float>::quiet_NaN());
  contract_of("shift").clear(cache.data(), config);
  CHECK(cache == std::vector<float>(6, 0.0f));
  cache.assign(6, 5.0f);
  contract_of("shift").after_padding(cache.data(), {2, 1, 1, 0}, config);
  CHECK(cache == std::vector<float>{5, 5, 0, 0, 5, 5});
  cache.assign(6, 5.0f);
  contract_of("ring").clear(cache.data(), config);
  contract_of("ring").after_padding(cache.data(), {2, 1, 0, 0}, config);
  CHECK(cache == std::vector<float>(6, 5.0f));
}

TEST_CASE("every contract accepts its own tensors and names each difference") {
  for (const std::string& kind : contract_names()) {
    const Contract& contract = contract_of(kind);
    for (bool is_last : {false, true}) {
      const Signature needs = contract.signature(small(), 2, is_last, 8);
      CHECK(problems_of(needs, needs).empty());
      for (size_t i = 0; i < needs.inputs.size(); ++i) {
        Signature found = needs;
        found.inputs[i].sizes.back() += 1;
        const auto problems = problems_of(found, needs);
        REQUIRE(problems.size() == 1);
        CHECK(contains(problems[0], "a.pte, method 'm': input " + std::to_string(i) + " (" + needs.inputs[i].role + ") is "));
        CHECK(contains(problems[0], "the configuration needs " + dtype_name(needs.inputs[i].dtype) + " " + shape_text(needs.inputs[i].sizes)));
      }
      for (size_t i = 0; i < needs.outputs.size(); ++i) {
        Signature found = needs;
        found.outputs[i].dtype = ScalarType::Half;
        const auto problems = problems_of(found, needs);
        REQUIRE(problems.size() == 1);
        CHECK(contains(problems[0], "output " + std::to_string(i) + " (" + needs.outputs[i].role + ") is float16"));
      }
    }
  }
}

TEST_CASE("a program of the other kind is told by its second input") {
  const Config config = small();
  const Signature shift = contract_of("shift").signature(config, 1, false, 8), ring = contract_of("ring").signature(config, 1, false, 8);
  CHECK(problems_of(shift, ring) ==
        std::vector<std::string>{"a.pte, method 'm': input 1 (pos) is float32 [1, 1, 8, 32], the configuration needs int64 [2]"});
  CHECK(problems_of(ring, shift) ==
        std::vector<std::string>{"a.pte, method 'm': input 1 (mask) is int64 [2], the configuration needs float32 [1, 1, 8, 32]"});
}

TEST_CASE("counts, kinds, layout and planning are checked") {
  const Signature needs = contract_of("ring").signature(small(), 1, false, 8);
  std::vector<std::string> problems;
  check_tensors("x", fitting(contract_of("ring").signature(small(), 2, false, 8).inputs), fitting(needs.outputs), needs, problems);
  CHECK(problems == std::vector<std::string>{"x: 7 inputs, 1 layers need 5"});

  std::vector<TensorFacts> inputs = fitting(needs.inputs);
  inputs[0].is_tensor = false;
  inputs[0].kind = "int";
  inputs[2].dim_order = {0, 2, 1, 3};
  inputs[3].planned = true;
  problems.clear();
  check_tensors("x", inputs, fitting(needs.outputs), needs, problems);
  REQUIRE(problems.size() == 3);
  CHECK(problems[0] == "x: input 0 (hidden) is of kind int, not a tensor");
  CHECK(problems[1] == "x: input 2 (rotary) is not laid out in row-major order");
  CHECK(contains(problems[2], "x: input 3 (key cache 0) has planned memory"));
}

TEST_CASE("sizes beyond memory are an error of the configuration") {
  const TensorNeed need{"mask", ScalarType::Float, {int64_t{1} << 40, int64_t{1} << 22}};
  CHECK(std::string(failure_of([&] { need.bytes(); }).code) == "runner.config");
}
