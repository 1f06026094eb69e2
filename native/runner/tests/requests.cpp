#include "requests.h"

#include <unistd.h>

#include <doctest/doctest.h>

#include "failing.h"

using namespace etcli;

TEST_CASE("requests are words of a line") {
  const Request prompt = parse_request("prompt 64 1, 2,3");
  CHECK(prompt.kind == Request::kPrompt);
  CHECK(prompt.number == 64);
  CHECK(prompt.ids == std::vector<int64_t>{1, 2, 3});
  CHECK(parse_request("keep 0").kind == Request::kKeep);
  CHECK(parse_request("keep 12").number == 12);
  CHECK(parse_request("stop").kind == Request::kStop);
  CHECK(parse_request("quit").kind == Request::kQuit);
  for (const char* wrong : {"", " ", "prompt", "prompt 1", "prompt 0 1", "prompt -1 1", "prompt x 1", "keep", "keep -1", "keep 1 2", "stop it", "no"}) {
    CHECK(std::string(failure_of([&] { parse_request(wrong); }).code) == "runner.usage");
  }
  CHECK(std::string(failure_of([] { parse_request("prompt 4 1,x"); }).code) == "runner.prompt");
}

TEST_CASE("lines come whole, and a stop is seen without waiting") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const auto say = [&](const std::string& words) { REQUIRE(::write(ends[1], words.data(), words.size()) == static_cast<ssize_t>(words.size())); };
  RequestLines lines(ends[0]);
  CHECK_FALSE(lines.stop_asked());
  say("keep 1\r\nkeep 2\nsto");
  CHECK_FALSE(lines.stop_asked());  // other requests wait before it
  CHECK(lines.next() == "keep 1");
  CHECK(lines.next() == "keep 2");
  CHECK_FALSE(lines.stop_asked());
  say("p\nquit\n");
  CHECK(lines.stop_asked());
  CHECK_FALSE(lines.stop_asked());
  ::close(ends[1]);
  CHECK_FALSE(lines.stop_asked());  // there is a request left
  CHECK(lines.next() == "quit");
  CHECK(lines.stop_asked());  // nobody is there any more
  CHECK_FALSE(lines.next().has_value());
  ::close(ends[0]);
}
