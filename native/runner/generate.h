// Decoding: prompt in, ids out, with the times that a run reports.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model.h"
#include "sampling.h"

namespace etcli {

// Asked between calls: false ends a run early. An empty one never does.
using GoOn = std::function<bool()>;

struct GenerateOptions {
  int64_t max_new_tokens = 64;
  bool ignore_stop_ids = false;
  Sampling sampling;  // for `generate`; a Session has its own
  GoOn go_on;
};

// Seconds and counts of a run so far.
struct GenerateStats {
  std::string stop_reason;  // stop_id, max_new_tokens, cache_full; stopped, by go_on
  int64_t prompt_tokens = 0;
  int64_t prefill_calls = 0;
  double prefill_seconds = 0;
  std::vector<double> prefill_chunk_seconds;
  double first_token_seconds = 0;  // the prompt's calls and the choice of the first token
  int64_t new_tokens = 0;          // a stop id included
  int64_t decode_steps = 0;        // one-token calls
  double decode_seconds = 0;
  std::vector<double> chunk_seconds;  // of the decode steps, for each chunk
};

// Ids from "1, 2 3": separated by commas or white space. Throws Failure "runner.prompt".
std::vector<int64_t> parse_ids(const std::string& words);

// Throws Failure "runner.prompt" for an empty prompt, one longer than the cache, or an id outside of the vocabulary.
void check_prompt(const Config& config, const std::vector<int64_t>& prompt);

// A conversation: what was given to a model and what it said, in its caches. Prompt and decode take turns as often as the caches hold.
// After a Failure, or a prompt that go_on ended, everything is forgotten. One thread at a time.
struct Session {
  using OnToken = std::function<void(int64_t index, int64_t id, double seconds)>;

  explicit Session(Model& for_model) : model(for_model) {}

  // Forgets every token.
  void reset();

  // Tokens of the conversation: all that was given and said.
  int64_t length() const;

  // Tokens that the caches still have a place for.
  int64_t room() const;

  // Forgets all but the first `tokens` tokens, or everything where the kind of cache cannot go back that far; what is kept is `length`.
  // Throws Failure "runner.prompt" where there are fewer.
  void keep(int64_t tokens);

  // Runs the conversation's next tokens: the first prompt, or what follows all that was said. Fills the prompt's part of `stats` anew.
  // False where go_on ended it. Throws Failure "runner.prompt" (no ids, no room for them, an id outside of the vocabulary; nothing is
  // forgotten then) or "runner.execute".
  bool prefill(const std::vector<int64_t>& ids, const GoOn& go_on = {});

  // Says the next tokens, up to a stop id, the bound, or the last position of the caches, whichever comes first, and adds them to
  // `stats`; again, it goes on behind the last one. `on_token` gets each as it is known: index and seconds since the prompt's first call.
  // Each is chosen by `sampler` as it stands then: the first one behind a prompt too.
  // Throws Failure "runner.prompt" where there is nothing to go on from, or "runner.execute".
  void decode(const GenerateOptions& options, const OnToken& on_token);

  Model& model;
  Sampler sampler;      // greedy, until it is told otherwise
  GenerateStats stats;  // since the last prompt began

 private:
  void say(const GenerateOptions& options, const OnToken& on_token);

  double start = 0;
  const float* logits = nullptr;  // of the model, on what follows all that the caches hold; nothing has been chosen by them yet
  bool has_last = false;          // `last` was given to on_token, so that it is part of the conversation, but is not in the caches yet
  int64_t last = 0;
};

// A conversation of one prompt, checked before, and one answer. `on_prefill` is called between them. Throws Failure "runner.execute".
GenerateStats generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options,
                       const std::function<void(const GenerateStats&)>& on_prefill, const Session::OnToken& on_token);

}  // namespace etcli
