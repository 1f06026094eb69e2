// etcli_llama_runner: token ids in, JSON lines out (docs/runner-protocol.md).
#include <unistd.h>

#include "clock.h"
#include "events.h"
#include "failure.h"
#include "files.h"
#include "generate.h"
#include "huge_pages.h"
#include "main.h"
#include "model.h"
#include "requests.h"
#include "runtime.h"

using namespace etcli;

static const std::vector<Flag> kFlags = {
    {"--config", "FILE", "the model's configuration; paths in it are relative to its folder"},
    {"--prompt-ids", "1,2,3", "the prompt as token ids"},
    {"--prompt-ids-file", "FILE", "the same, separated by white space or commas"},
    {"--max-new-tokens", "N", "upper bound, a stop id counts (default 64)"},
    {"--temperature", "T", "draw tokens instead of taking the likeliest (default 0: greedy)"},
    {"--top-p", "P", "draw among the likeliest that have P of the probability together (default 1: all)"},
    {"--seed", "N", "of the drawing (default 0)"},
    {"--interactive", nullptr, "a conversation over stdin, a request a line, instead of one prompt"},
    {"--threads", "N", "threads of the CPU backends (default: the runtime's choice)"},
    {"--no-shared-weights", nullptr, "let each method pack its own weights, to see what sharing saves"},
    {"--no-huge-pages", nullptr, "keep weights in memory pages of the usual size"},
    {"--ignore-stop-ids", nullptr, "go on to the bound, for benchmarks"},
    {"--check", nullptr, "load and check everything, run nothing"},
    {"--verbose", nullptr, "the runtime's informational messages on stderr too"},
    {"--version", nullptr, "print the version"},
    {"--help", nullptr, "print this text"},
};

static std::vector<int64_t> read_prompt(const Flags& flags) {
  if (flags.has("--prompt-ids") && flags.has("--prompt-ids-file")) throw usage_failure("--prompt-ids and --prompt-ids-file exclude one another");
  if (flags.has("--prompt-ids-file")) return parse_ids(read_file(flags.get("--prompt-ids-file"), 256u << 20));
  if (flags.has("--prompt-ids")) return parse_ids(flags.get("--prompt-ids"));
  throw usage_failure("a prompt is needed: --prompt-ids or --prompt-ids-file");
}

static double rate(int64_t tokens, double seconds) { return static_cast<double>(tokens) / seconds; }

static std::string seconds_array(const std::vector<double>& seconds) {
  std::vector<std::string> items;
  for (double item : seconds) items.push_back(json_number(item));
  return json_array(items);
}

static void emit_prefill(const GenerateStats& stats) {
  emit(event("prefill")
           .put("tokens", stats.prompt_tokens)
           .put("calls", stats.prefill_calls)
           .put("seconds", stats.prefill_seconds)
           .put_raw("chunk_seconds", seconds_array(stats.prefill_chunk_seconds)));
}

static void emit_token(int64_t index, int64_t id, double seconds) { emit(event("token").put("index", index).put("id", id).put("t_s", seconds)); }

static JsonObject stats_event(const GenerateStats& stats, double load_seconds) {
  JsonObject object = event("stats");
  object.put("stop_reason", stats.stop_reason)
      .put("prompt_tokens", stats.prompt_tokens)
      .put("new_tokens", stats.new_tokens)
      .put("load_s", load_seconds)
      .put("prefill_s", stats.prefill_seconds)
      .put("decode_s", stats.decode_seconds)
      .put("decode_steps", stats.decode_steps)
      .put("prefill_tokens_per_s", rate(stats.prompt_tokens, stats.prefill_seconds));
  if (stats.decode_steps > 0) {
    object.put("decode_tokens_per_s", rate(stats.decode_steps, stats.decode_seconds));
  } else {
    object.put_null("decode_tokens_per_s");
  }
  object.put("time_to_first_token_s", stats.first_token_seconds)
      .put("peak_memory_bytes", peak_resident_bytes())
      .put_raw("chunk_seconds", seconds_array(stats.chunk_seconds));
  return object;
}

// One turn: the conversation's next tokens, and what the model says to them.
static void answer(Session& session, const Request& request, GenerateOptions options, RequestLines& lines, double load_seconds) {
  options.max_new_tokens = request.number;
  options.go_on = [&lines] { return !lines.stop_asked(); };
  try {
    if (session.prefill(request.ids, options.go_on)) {
      emit_prefill(session.stats);
      session.decode(options, emit_token);
    } else {
      session.stats.stop_reason = "stopped";
    }
  } catch (const Failure& failure) {
    if (failure.status != prompt_failure("").status) throw;
    emit(event("refused").put("code", failure.code).put("message", failure.what()));
    return;
  }
  emit(stats_event(session.stats, load_seconds).put("conversation_tokens", session.length()));
}

static void converse(Model& model, const GenerateOptions& options, double load_seconds) {
  Session session(model);
  session.sampler.sampling = options.sampling;
  RequestLines lines(STDIN_FILENO);
  while (const auto line = lines.next()) {
    const Request request = parse_request(*line);
    if (request.kind == Request::kQuit) return;
    if (request.kind == Request::kPrompt) answer(session, request, options, lines, load_seconds);
    if (request.kind == Request::kKeep) {
      session.keep(request.number);
      emit(event("kept").put("tokens", session.length()));
    }  // a "stop" that comes here came too late
  }
}

static void work(const Flags& flags) {
  // Everything that is cheap to refuse comes before the model is loaded.
  if (!flags.has("--config")) throw usage_failure("--config is needed");
  const bool only_check = flags.has("--check");
  GenerateOptions options;
  options.max_new_tokens = flags.number("--max-new-tokens", options.max_new_tokens, 1, INT32_MAX);
  options.ignore_stop_ids = flags.has("--ignore-stop-ids");
  options.sampling.temperature = flags.decimal("--temperature", 0, 0, 1000);
  options.sampling.top_p = flags.decimal("--top-p", 1, 0, 1);
  options.sampling.seed = static_cast<uint64_t>(flags.number("--seed", 0, 0, INT64_MAX));
  const bool is_interactive = flags.has("--interactive");
  const int64_t wanted_threads = flags.number("--threads", 0, 1, 1024);
  const bool has_prompt = flags.has("--prompt-ids") || flags.has("--prompt-ids-file");
  if (is_interactive && has_prompt) throw usage_failure("--interactive takes its prompts from stdin, not from flags");
  const bool needs_prompt = has_prompt || (!only_check && !is_interactive);
  std::vector<int64_t> prompt;
  if (needs_prompt) prompt = read_prompt(flags);
  Config config = read_config(flags.get("--config"));
  if (needs_prompt) check_prompt(config, prompt);

  const double start = now();
  const int64_t threads = set_threads(wanted_threads);
  if (!flags.has("--no-shared-weights")) share_packed_weights();
  if (!flags.has("--no-huge-pages")) use_huge_pages();
  Model model(std::move(config));
  const double load_seconds = now() - start;
  emit(event("loaded")
           .put("load_s", load_seconds)
           .put("chunks", static_cast<int64_t>(model.chunks.size()))
           .put("threads", threads)
           .put("memory_bytes", resident_bytes())
           .put("cache", model.config.cache)
           .put("huge_page_bytes", huge_page_bytes()));
  if (only_check) return;

  if (is_interactive) return converse(model, options, load_seconds);
  const GenerateStats stats = generate(model, prompt, options, emit_prefill, emit_token);
  emit(stats_event(stats, load_seconds));
}

int main(int argc, char** argv) {
  return run_program({"etcli_llama_runner", "etcli_llama_runner --config FILE --prompt-ids 1,2,3 [flags]", kFlags}, argc, argv, work);
}
