// Calls as they come in from outside: each can be told to fail, is traced, and ends with a result code, never with an exception.
//
// ETCLI_NEURON_SIM_FAIL="NAME[:N][,NAME[:N]...]" makes the N-th call of a function fail, every call without N. Read at every call; counting
// begins anew whenever it is seen to have changed.
// ETCLI_NEURON_SIM_TRACE=FILE appends a line for every call. Lines are written whole, so that both libraries and several threads can share
// a file.
#pragma once

#include <new>
#include <string>

#include "refusal.h"

namespace etcli::neuron_sim {

// "NEURON_BAD_DATA".
std::string code_name(int code);

// A line on stderr, where the vendor's libraries would write to the device's log.
void say(const std::string& message);

// Throws Refusal when this call was told to fail, or when what was told makes no sense.
void fail_when_told(const char* function);

// Traces a call, and says on stderr why it was refused. `problem` is empty where there is none.
void record(const char* function, const std::string& arguments, const std::string& result, const std::string& problem);

// The whole life of a call with a result code. `body` returns what the trace shows beside the code.
template <class Body>
int answer(const char* function, const std::string& arguments, const Body& body) noexcept {
  int code = NEURON_NO_ERROR;
  std::string shown, problem;
  try {
    fail_when_told(function);
    shown = body();
  } catch (const Refusal& refusal) {
    code = refusal.code;
    problem = refusal.what();
  } catch (const std::bad_alloc&) {
    code = NEURON_OUT_OF_MEMORY;
    problem = "out of memory";
  } catch (const std::exception& error) {
    code = NEURON_OP_FAILED;
    problem = error.what();
  }
  record(function, arguments, shown.empty() ? code_name(code) : code_name(code) + ", " + shown, problem);
  return code;
}

}  // namespace etcli::neuron_sim
