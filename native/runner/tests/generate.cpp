#include "generate.h"

#include <doctest/doctest.h>

#include "failing.h"

using namespace etcli;

TEST_CASE("prompt ids are separated by commas and white space") {
  CHECK(parse_ids("1,2,3") == std::vector<int64_t>{1, 2, 3});
  CHECK(parse_ids(" 1, 2\n3\t4\r\n") == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(parse_ids("").empty());
  CHECK(parse_ids(" \n,").empty());
  for (const char* wrong : {"1,x", "-1", "1.5", "1;2", "99999999999999999999", "2147483648"}) {
    const Failure failure = failure_of([&] { parse_ids(wrong); });
    CHECK(std::string(failure.code) == "runner.prompt");
    CHECK(failure.status == 2);
  }
  CHECK(contains(failure_of([] { parse_ids("4,zz"); }).what(), "prompt id 1 is 'zz'"));
}

TEST_CASE("a prompt has to fit the model") {
  Config config;
  config.cache_length = 3;
  config.vocab_size = 10;
  check_prompt(config, {0, 9, 1});
  CHECK(contains(failure_of([&] { check_prompt(config, {}); }).what(), "no tokens"));
  CHECK(contains(failure_of([&] { check_prompt(config, {1, 1, 1, 1}); }).what(), "has 4 tokens, the cache of this model holds 3"));
  CHECK(contains(failure_of([&] { check_prompt(config, {1, 10}); }).what(), "prompt id 1 is 10, the vocabulary has 10"));
}
