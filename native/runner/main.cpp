#include "main.h"

#include <unistd.h>

#include <cstdio>
#include <new>

#include "events.h"
#include "failure.h"

namespace etcli {

static int fail(const char* code, int status, const char* message) {
  std::fprintf(stderr, "error: %s\n", valid_utf8(message).c_str());
  try {
    emit(event("error").put("code", code).put("message", message));
  } catch (const Failure&) {
    // Nobody reads stdout; the status still tells.
  }
  return status;
}

RuntimeHooks program_hooks() {
  RuntimeHooks hooks{};
  hooks.log = [](bool, const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  hooks.on_abort = [] { ::_exit(fail("runner.execute", 5, ("the ExecuTorch runtime gave up" + last_errors()).c_str())); };
  return hooks;
}

int run_program(const ProgramInfo& info, int argc, char** argv, const std::function<void(const Flags&)>& work) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (const std::string& word : words) {
      if (word == "--help") {
        std::fputs(help_text(info.usage, info.flags).c_str(), stdout);
        return 0;
      }
      if (word == "--version") {
        std::printf("%s %s (ExecuTorch %s)\n", info.name, etcli_version(), executorch_version());
        return 0;
      }
    }
    keep_stdout_for_events();
    emit(event("start")
             .put("protocol", 1)
             .put("runner", info.name)
             .put("version", etcli_version())
             .put("executorch", executorch_version())
             .put("pid", static_cast<int64_t>(::getpid())));
    const Flags flags = parse_flags(words, info.flags);
    start_runtime(flags.has("--verbose"), program_hooks());
    work(flags);
    return 0;
  } catch (const Failure& failure) {
    return fail(failure.code, failure.status, failure.what());
  } catch (const std::bad_alloc&) {
    return fail("runner.memory", 3, "out of memory");
  } catch (const std::exception& unexpected) {
    return fail("runner.execute", 5, unexpected.what());
  }
}

}  // namespace etcli
