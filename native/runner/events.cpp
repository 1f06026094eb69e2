#include "events.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "failure.h"

namespace etcli {

static FILE* events = stdout;

void keep_stdout_for_events() {
  std::fflush(stdout);
  const int copy = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  FILE* const own = copy < 0 ? nullptr : ::fdopen(copy, "w");
  if (own == nullptr) return;  // stdout is closed, which the first event tells
  events = own;
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
}

void emit(const JsonObject& object) {
  const std::string line = object.str() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), events) != line.size() || std::fflush(events) != 0) {
    throw Failure("runner.file", 3, text("cannot write to stdout: ", std::strerror(errno)));
  }
}

}  // namespace etcli
