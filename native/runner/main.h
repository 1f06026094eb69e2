// What both programs do around their work: words of the command line in, one status out, every failure an `error` event.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "flags.h"

namespace etcli {

struct ProgramInfo {
  const char* name;
  const char* usage;
  std::vector<Flag> flags;
};

// Parses the flags, answers --help and --version, emits `start`, runs `work`, and turns a failure into an event and a status.
int run_program(const ProgramInfo& info, int argc, char** argv, const std::function<void(const Flags&)>& work);

}  // namespace etcli
