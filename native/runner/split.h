// How a prompt is divided into calls of static sizes. etcli/llama/prefill.py follows the same rule.
#pragma once

#include <cstdint>
#include <vector>

namespace etcli {

struct Call {
  int64_t tokens;   // rows of the call, a method's T
  int64_t padding;  // how many of them are padding; the contract says on which side
};

// What a call costs on top of its rows, in rows: every call reads all weights, which on a phone's CPU takes about as long as computing
// five rows does. So a short rest goes through one-token calls, and a longer one is padded.
constexpr int64_t call_rows = 5;

// The calls that take `length` >= 1 tokens: the least rows + call_rows * calls, then the fewest calls, then larger shapes. By rising
// size, and only the first is padded, as the cache contract wants.
// `shapes` holds at least one size, each at least 1, in falling order.
// Without `may_pad`, `shapes` holds 1 and no call is padded.
std::vector<Call> split_prompt(int64_t length, const std::vector<int64_t>& shapes, bool may_pad = true);

}  // namespace etcli
