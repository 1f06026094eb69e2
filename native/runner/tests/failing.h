// The failure of an expression that has to fail.
#pragma once

#include <functional>
#include <string>

#include <doctest/doctest.h>

#include "failure.h"

inline etcli::Failure failure_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const etcli::Failure& failure) {
    return failure;
  }
  FAIL("did not fail");
  return {"", 0, ""};
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
