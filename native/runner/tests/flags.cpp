#include "flags.h"

#include <doctest/doctest.h>

#include "failing.h"

using namespace etcli;

static const std::vector<Flag> kKnown = {{"--n", "N", "a number"}, {"--on", nullptr, "a switch"}, {"--in", "FILE", "files", true}};

TEST_CASE("values stand after a blank or an equals sign") {
  const Flags flags = parse_flags({"--n", "3", "--on", "--in=a", "--in", "b=c"}, kKnown);
  CHECK(flags.number("--n", 7, 1, 9) == 3);
  CHECK(flags.has("--on"));
  CHECK(flags.all("--in") == std::vector<std::string>{"a", "b=c"});
  CHECK(parse_flags({}, kKnown).number("--n", 7, 1, 9) == 7);
  CHECK(parse_flags({}, kKnown).all("--in").empty());
}

TEST_CASE("wrong command lines are refused") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--m"}, {"stray"}, {"--n"}, {"--n", "1", "--n", "2"}, {"--on=yes"}, {"--on", "--on"}, {"-n", "1"}, {""}}) {
    const Failure failure = failure_of([&] { parse_flags(words, kKnown); });
    CHECK(std::string(failure.code) == "runner.usage");
    CHECK(failure.status == 2);
  }
  for (const char* value : {"0", "10", "x", "", "-1", "1.5"}) {
    CHECK(contains(failure_of([&] { parse_flags({"--n", value}, kKnown).number("--n", 7, 1, 9); }).what(), "from 1 to 9"));
  }
}

TEST_CASE("the help names every flag") {
  const std::string help = help_text("x [flags]", kKnown);
  for (const Flag& flag : kKnown) CHECK(contains(help, flag.name));
}
