// How a prompt is divided into calls of static sizes. etcli/llama/prefill.py follows the same rule.
#pragma once

#include <cstdint>
#include <vector>

namespace etcli {

struct Call {
  int64_t tokens;   // rows of the call, a method's T
  int64_t padding;  // how many of them, at the start, are padding
};

// The calls that take `length` >= 1 tokens: as few rows as possible, then as few calls, then larger shapes. By rising size, and only
// the first is padded, as the cache contract wants; with one shape T that is a first call of `length mod T` tokens, then full calls.
// `shapes` holds at least one size, each at least 1, in falling order.
std::vector<Call> split_prompt(int64_t length, const std::vector<int64_t>& shapes);

}  // namespace etcli
