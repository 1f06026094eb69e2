// What both programs do around their work: words of the command line in, one status out, every failure an `error` event.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "flags.h"
#include "runtime.h"

namespace etcli {

struct ProgramInfo {
  const char* name;
  const char* usage;
  std::vector<Flag> flags;
};

// The runtime's words go to stderr; its end is an `error` event and status 5 instead of a bare SIGABRT.
RuntimeHooks program_hooks();

// Parses the flags, answers --help and --version, emits `start`, runs `work`, and turns a failure into an event and a status.
int run_program(const ProgramInfo& info, int argc, char** argv, const std::function<void(const Flags&)>& work);

}  // namespace etcli
