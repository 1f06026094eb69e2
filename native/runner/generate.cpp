#include "generate.h"

#include <algorithm>

#include "clock.h"
#include "failure.h"
#include "inputs.h"
#include "numbers.h"
#include "split.h"

namespace etcli {

std::vector<int64_t> parse_ids(const std::string& words) {
  std::vector<int64_t> ids;
  const char* separators = ", \t\r\n";
  for (size_t at = words.find_first_not_of(separators); at != std::string::npos;) {
    const size_t end = std::min(words.find_first_of(separators, at), words.size());
    const std::string word = words.substr(at, end - at);
    const auto id = parse_int(word, INT32_MAX);
    if (!id) throw prompt_failure(text("prompt id ", ids.size(), " is '", word.substr(0, 40), "', not a token id"));
    ids.push_back(*id);
    at = words.find_first_not_of(separators, end);
  }
  return ids;
}

static void check_ids(const Config& config, const std::vector<int64_t>& ids) {
  if (ids.empty()) throw prompt_failure("the prompt has no tokens");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= config.vocab_size) {
      throw prompt_failure(text("prompt id ", i, " is ", ids[i], ", the vocabulary has ", config.vocab_size, " tokens"));
    }
  }
}

void check_prompt(const Config& config, const std::vector<int64_t>& prompt) {
  const int64_t length = static_cast<int64_t>(prompt.size());
  if (length > config.cache_length) {
    throw prompt_failure(text("the prompt has ", length, " tokens, the cache of this model holds ", config.cache_length));
  }
  check_ids(config, prompt);
}

// What each chunk has taken since `before`.
static std::vector<double> seconds_since(const std::vector<double>& before, const std::vector<double>& after) {
  std::vector<double> taken;
  for (size_t k = 0; k < before.size(); ++k) taken.push_back(after[k] - before[k]);
  return taken;
}

// A token that was chosen by the logits after all that `model` has seen: -1 where they are no numbers.
static int64_t checked(int64_t id, const Model& model) {
  if (id < 0) throw execute_failure(text("the logits after ", model.seen, " tokens hold a value that is not a number (NaN)"));
  return id;
}

void Session::reset() {
  model.reset();
  logits = nullptr;
  has_last = false;
  sampler.drawn = 0;
}

int64_t Session::length() const { return model.seen + (has_last ? 1 : 0); }

int64_t Session::room() const { return std::max<int64_t>(0, model.config.cache_length - length()); }

void Session::keep(int64_t tokens) {
  if (tokens > length()) throw prompt_failure(text("the conversation has ", length(), " tokens, not ", tokens));
  if (tokens == length()) return;
  if (tokens == 0 || (tokens < model.seen && !model.contract.can_go_back())) return reset();
  model.seen = tokens;
  logits = nullptr;
  has_last = false;
}

bool Session::prefill(const std::vector<int64_t>& ids, const GoOn& go_on) {
  check_ids(model.config, ids);
  if (static_cast<int64_t>(ids.size()) > room()) {
    throw prompt_failure(text("the prompt has ", ids.size(), " tokens, the cache of this model holds ", model.config.cache_length, ", of which ",
                              model.config.cache_length - room(), " are taken"));
  }
  stats = {};
  stats.prompt_tokens = static_cast<int64_t>(ids.size());
  const std::vector<double> before = model.chunk_seconds;
  start = now();
  std::vector<int64_t> rows;
  if (has_last) rows.push_back(last);
  rows.insert(rows.end(), ids.begin(), ids.end());

  try {
    const int64_t* at = rows.data();
    std::vector<int64_t> shapes = model.config.prompt_tokens;
    shapes.push_back(1);  // the decode methods take prompts too
    const bool may_pad = model.seen == 0 || model.contract.pads_behind_tokens();
    for (const Call& call : split_prompt(static_cast<int64_t>(rows.size()), shapes, may_pad)) {
      if (go_on && !go_on()) {
        reset();
        return false;
      }
      const int64_t real = call.tokens - call.padding;
      logits = model.forward(at, call.tokens, real);
      at += real;
      ++stats.prefill_calls;
    }
    checked(argmax(logits, model.config.vocab_size), model);
  } catch (...) {
    reset();
    throw;
  }
  has_last = false;
  stats.prefill_seconds = stats.first_token_seconds = now() - start;
  stats.prefill_chunk_seconds = seconds_since(before, model.chunk_seconds);
  stats.chunk_seconds.assign(model.chunks.size(), 0.0);
  return true;
}

void Session::decode(const GenerateOptions& options, const OnToken& on_token) {
  if (logits == nullptr && !has_last) throw prompt_failure("there is nothing to go on from: a prompt comes first, and again after a failure or a reset");
  const std::vector<double> before = model.chunk_seconds;
  try {
    say(options, on_token);
  } catch (...) {
    reset();
    throw;
  }
  const std::vector<double> taken = seconds_since(before, model.chunk_seconds);
  for (size_t k = 0; k < taken.size(); ++k) stats.chunk_seconds[k] += taken[k];
}

void Session::say(const GenerateOptions& options, const OnToken& on_token) {
  const std::vector<int64_t>& stops = model.config.stop_ids;
  const auto end = [&](const char* reason) { stats.stop_reason = reason; };
  const auto ended = [&] { return options.go_on && !options.go_on(); };
  for (int64_t count = 1;; ++count) {
    if (ended()) return end("stopped");
    if (has_last) {
      if (model.seen >= model.config.cache_length) return end("cache_full");
      const double step = now();
      logits = model.forward(&last, 1, 1);
      has_last = false;
      stats.decode_seconds += now() - step;
      ++stats.decode_steps;
      if (ended()) return end("stopped");
    }
    const double choice = now();
    last = checked(sampler.pick(logits, model.config.vocab_size), model);
    logits = nullptr;
    has_last = true;
    (stats.new_tokens == 0 ? stats.first_token_seconds : stats.decode_seconds) += now() - choice;
    on_token(stats.new_tokens, last, now() - start);
    ++stats.new_tokens;
    if (!options.ignore_stop_ids && std::find(stops.begin(), stops.end(), last) != stops.end()) return end("stop_id");
    if (count >= options.max_new_tokens) return end("max_new_tokens");
  }
}

GenerateStats generate(Model& model, const std::vector<int64_t>& prompt, const GenerateOptions& options,
                       const std::function<void(const GenerateStats&)>& on_prefill, const Session::OnToken& on_token) {
  Session session(model);
  session.reset();
  session.sampler.sampling = options.sampling;
  if (!session.prefill(prompt, options.go_on)) {
    session.stats.stop_reason = "stopped";
    return session.stats;
  }
  on_prefill(session.stats);
  session.decode(options, on_token);
  return session.stats;
}

}  // namespace etcli
