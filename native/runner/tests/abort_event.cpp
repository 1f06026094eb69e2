// A failed check inside the runtime ends in an `error` event and status 5, not in a bare SIGABRT.
#include <executorch/runtime/platform/assert.h>

#include "main.h"

int main() {
  etcli::start_runtime(false, etcli::program_hooks());
  ET_CHECK_MSG(false, "broken on purpose");
  return 0;
}
