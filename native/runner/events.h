// Events: what a program writes to stdout (docs/runner-protocol.md).
#pragma once

#include "json.h"

namespace etcli {

// From here on stdout is for `emit` alone: what operators and vendors' libraries print there goes to stderr.
void keep_stdout_for_events();

// Writes the object as one line to stdout and flushes it. Throws Failure when nobody can read it (disk full, closed pipe).
void emit(const JsonObject& object);

}  // namespace etcli
