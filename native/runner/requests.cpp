#include "requests.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "failure.h"
#include "generate.h"
#include "numbers.h"

namespace etcli {

static constexpr size_t kLongestLine = 64u << 20;

Request parse_request(const std::string& line) {
  const size_t end_of_word = std::min(line.find(' '), line.size());
  const std::string word = line.substr(0, end_of_word);
  if (line == "stop") return {Request::kStop, 0, {}};
  if (line == "quit") return {Request::kQuit, 0, {}};
  if (end_of_word < line.size() && (word == "prompt" || word == "keep")) {
    const bool is_prompt = word == "prompt";
    const size_t end_of_number = is_prompt ? std::min(line.find(' ', end_of_word + 1), line.size()) : line.size();
    const auto number = parse_int(line.substr(end_of_word + 1, end_of_number - end_of_word - 1), INT32_MAX);
    if (number && !is_prompt) return {Request::kKeep, *number, {}};
    if (number && *number > 0 && end_of_number < line.size()) return {Request::kPrompt, *number, parse_ids(line.substr(end_of_number + 1))};
  }
  throw usage_failure(text("'", line.substr(0, 80), "' is no request: prompt MAX_NEW_TOKENS IDS, keep TOKENS, stop or quit"));
}

std::optional<std::string> RequestLines::take_line() {
  const size_t end = buffer.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = buffer.substr(0, end);
  buffer.erase(0, end + 1);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

bool RequestLines::read_more() {
  char block[1 << 16];
  ssize_t count = 0;
  do {
    count = ::read(descriptor, block, sizeof block);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) {
    ended = true;
    return false;
  }
  buffer.append(block, static_cast<size_t>(count));
  if (buffer.size() > kLongestLine) throw usage_failure("a request of more than 64 MiB");
  return true;
}

std::optional<std::string> RequestLines::next() {
  for (;;) {
    if (auto line = take_line()) return line;
    if (ended || !read_more()) return std::nullopt;
  }
}

bool RequestLines::stop_asked() {
  pollfd waiting{descriptor, POLLIN, 0};
  while (!ended && ::poll(&waiting, 1, 0) > 0 && read_more()) {
  }
  if (buffer.compare(0, 5, "stop\n") != 0) return ended && buffer.find('\n') == std::string::npos;
  buffer.erase(0, 5);
  return true;
}

}  // namespace etcli
