// What a conversation is asked over stdin, a line a request (docs/runner-protocol.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace etcli {

struct Request {
  enum Kind { kPrompt, kKeep, kStop, kQuit } kind;
  int64_t number = 0;        // most new tokens of a prompt; tokens to keep
  std::vector<int64_t> ids;  // of a prompt
};

// "prompt 64 1,2,3", "keep 12", "stop" or "quit". Throws Failure "runner.usage", or "runner.prompt" for words that are no ids.
Request parse_request(const std::string& line);

// The lines of a descriptor, which can be looked at while a model runs. One thread at a time.
struct RequestLines {
  explicit RequestLines(int of_descriptor) : descriptor(of_descriptor) {}

  // The next line, waited for; nothing at the end. Throws Failure "runner.usage" for one longer than any request.
  std::optional<std::string> next();

  // Whether "stop" is the next line, which is taken then, or nobody will ask anything more. Does not wait.
  bool stop_asked();

 private:
  bool read_more();
  std::optional<std::string> take_line();

  int descriptor;
  std::string buffer;
  bool ended = false;
};

}  // namespace etcli
