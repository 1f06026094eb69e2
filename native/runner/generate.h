// Greedy decoding: prompt in, ids out, with the times that a run reports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model.h"

namespace etcli {

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  bool ignore_stop_ids = false;
};

// Seconds and counts of a run so far.
struct GenerateStats {
  std::string stop_reason;  // stop_id, max_new_tokens, cache_full
  int64_t prompt_tokens = 0;
  int64_t prefill_calls = 0;
  double prefill_seconds = 0;
  double first_token_seconds = 0;  // from the prompt's first call
  int64_t new_tokens = 0;          // a stop id included
  int64_t decode_steps = 0;        // one-token calls
  double decode_seconds = 0;
  std::vector<double> chunk_seconds;  // of the decode steps, for each chunk
};

// Ids from "1, 2 3": separated by commas or white space. Throws Failure "runner.prompt".
std::vector<int64_t> parse_ids(const std::string& words);

// Throws Failure "runner.prompt" for an empty prompt, one longer than the cache, or an id outside of the vocabulary.
void check_prompt(const Config& config, const std::vector<int64_t>& prompt);

// Runs a checked prompt and decodes until a stop id, the bound, or until every cache position is used. `on_prefill` is called once, then
// `on_token` for each token as it is known: index, id, seconds since the prompt's first call. Throws Failure "runner.execute".
GenerateStats generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options,
                       const std::function<void(const GenerateStats&)>& on_prefill,
                       const std::function<void(int64_t, int64_t, double)>& on_token);

}  // namespace etcli
