#include "config.h"

#include <algorithm>

#include "contract.h"
#include "embedding.h"
#include "failure.h"
#include "files.h"
#include "numbers.h"

namespace etcli {

namespace {

// Bounds far above any model, so that no later product of two of them overflows.
constexpr int64_t kMostSize = 1 << 20;      // hidden size, head size, heads, layers, chunks
constexpr int64_t kMostTokens = 1 << 24;    // cache length, positions, vocabulary, ids
constexpr size_t kMostFileBytes = 1 << 20;  // of the configuration file itself

struct Entry {
  std::string value;
  int line = 0;
  bool used = false;
};

struct Reader {
  std::string where;
  std::map<std::string, Entry> entries;
  std::vector<std::string> problems;

  void problem(int line, const std::string& message) {
    problems.push_back(line > 0 ? text(where, ":", line, ": ", message) : text(where, ": ", message));
  }

  void split_lines(std::string_view content) {
    int number = 0;
    while (!content.empty()) {
      const size_t end = content.find('\n');
      const std::string_view line = content.substr(0, end);
      content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
      ++number;
      if (line.empty() || line[0] == '#') continue;
      const size_t equals = line.find('=');
      if (equals == std::string_view::npos || equals == 0) {
        problem(number, text("not of the form key=value: '", line, "'"));
        continue;
      }
      const std::string key(line.substr(0, equals));
      const std::string value(line.substr(equals + 1));
      if (std::any_of(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; })) {
        problem(number, text("a control character (a Windows line end?) in the line of '", key, "'"));
        continue;
      }
      const auto [place, fresh] = entries.emplace(key, Entry{value, number});
      if (!fresh) problem(number, text("'", key, "' is given again, first in line ", place->second.line));
    }
  }

  Entry* find(const std::string& key) {
    const auto found = entries.find(key);
    if (found == entries.end()) {
      problem(0, text("'", key, "' is missing"));
      return nullptr;
    }
    found->second.used = true;
    return &found->second;
  }

  std::string word(const std::string& key) {
    Entry* entry = find(key);
    if (entry == nullptr) return {};
    if (entry->value.empty()) problem(entry->line, text("'", key, "' is empty"));
    return entry->value;
  }

  std::string one_of(const std::string& key, const std::vector<std::string>& choices) {
    Entry* entry = find(key);
    if (entry == nullptr) return {};
    if (std::find(choices.begin(), choices.end(), entry->value) == choices.end()) {
      std::string all;
      for (const std::string& choice : choices) all += (all.empty() ? "" : " or ") + choice;
      problem(entry->line, text("'", key, "' is '", entry->value, "', this runner knows ", all));
    }
    return entry->value;
  }

  // 0 where it is missing or wrong, which is then a problem already.
  int64_t number(const std::string& key, int64_t least, int64_t most) {
    Entry* entry = find(key);
    if (entry == nullptr) return 0;
    const auto value = parse_int(entry->value, most);
    if (!value || *value < least) {
      problem(entry->line, text("'", key, "' is '", entry->value, "', not a whole number from ", least, " to ", most));
      return 0;
    }
    return *value;
  }

  std::vector<int64_t> numbers(const std::string& key, int64_t least, int64_t most) {
    Entry* entry = find(key);
    std::vector<int64_t> values;
    if (entry == nullptr || entry->value.empty()) return values;
    std::string_view rest = entry->value;
    while (true) {
      const size_t comma = rest.find(',');
      const std::string_view item = rest.substr(0, comma);
      const auto value = parse_int(item, most);
      if (!value || *value < least) {
        problem(entry->line, text("'", key, "' holds '", item, "', not a whole number from ", least, " to ", most));
        return {};
      }
      values.push_back(*value);
      if (comma == std::string_view::npos) return values;
      rest.remove_prefix(comma + 1);
    }
  }

  // A bundle can be carried anywhere and must not reach outside of itself.
  std::string inner_path(const std::string& key) {
    Entry* entry = find(key);
    if (entry == nullptr) return {};
    bool inside = !entry->value.empty() && entry->value[0] != '/';
    for (std::string_view rest = entry->value; inside && !rest.empty();) {
      const size_t slash = rest.find('/');
      if (rest.substr(0, slash) == "..") inside = false;
      rest.remove_prefix(slash == std::string_view::npos ? rest.size() : slash + 1);
    }
    if (!inside) problem(entry->line, text("'", key, "' is '", entry->value, "', not a path inside the bundle"));
    return entry->value;
  }

  int line_of(const std::string& key) const {
    const auto found = entries.find(key);
    return found == entries.end() ? 0 : found->second.line;
  }
};

EmbeddingConfig read_embedding(Reader& in) {
  EmbeddingConfig embedding;
  embedding.path = in.inner_path("embedding.path");
  const std::vector<std::string> dtypes = embedding_dtypes();
  embedding.dtype = in.one_of("embedding.dtype", dtypes);
  embedding.rows = in.number("embedding.rows", 1, kMostTokens);
  embedding.cols = in.number("embedding.cols", 1, kMostSize);
  if (std::find(dtypes.begin(), dtypes.end(), embedding.dtype) == dtypes.end()) return embedding;
  const EmbeddingFormat& format = embedding_format(embedding.dtype);
  if (format.is_grouped) {
    embedding.group_size = in.number("embedding.group_size", 1, kMostSize);
    if (embedding.group_size != 0 && embedding.cols % embedding.group_size != 0) {
      in.problem(in.line_of("embedding.group_size"),
                 text("'embedding.group_size' is ", embedding.group_size, ", which does not divide 'embedding.cols' of ", embedding.cols));
    }
  }
  if (embedding.cols * format.bits % 8 != 0) {
    in.problem(in.line_of("embedding.cols"), text("'embedding.cols' is ", embedding.cols, ", not even, as ", embedding.dtype, " needs"));
  }
  return embedding;
}

void check_agreement(Reader& in, const Config& config) {
  auto equal = [&](const char* key, int64_t value, const char* other_key, int64_t other) {
    if (value != 0 && other != 0 && value != other) {
      in.problem(in.line_of(key), text("'", key, "' is ", value, ", but '", other_key, "' is ", other));
    }
  };
  equal("embedding.rows", config.embedding.rows, "vocab_size", config.vocab_size);
  equal("embedding.cols", config.embedding.cols, "hidden_size", config.hidden_size);
  if (config.head_dim % 2 != 0) in.problem(in.line_of("head_dim"), text("'head_dim' is ", config.head_dim, ", not even"));
  if (config.rope_positions != 0 && config.rope_positions < config.cache_length) {
    in.problem(in.line_of("rope.positions"),
               text("'rope.positions' is ", config.rope_positions, ", fewer than the cache_length of ", config.cache_length));
  }
  for (size_t i = 0; i < config.prompt_tokens.size(); ++i) {
    const int64_t tokens = config.prompt_tokens[i];
    if (config.cache_length != 0 && tokens > config.cache_length) {
      in.problem(in.line_of("prompt_tokens"), text("a prompt shape of ", tokens, " tokens exceeds the cache_length of ", config.cache_length));
    }
    if (i > 0 && tokens >= config.prompt_tokens[i - 1]) {
      in.problem(in.line_of("prompt_tokens"), "'prompt_tokens' is not in falling order");
    }
  }
  if (config.vocab_size == 0) return;
  for (int64_t id : config.stop_ids) {
    if (id >= config.vocab_size) {
      in.problem(in.line_of("stop_ids"), text("stop id ", id, " is not below the vocab_size of ", config.vocab_size));
    }
  }
  if (config.pad_id >= config.vocab_size) {
    in.problem(in.line_of("pad_id"), text("pad id ", config.pad_id, " is not below the vocab_size of ", config.vocab_size));
  }
}

}  // namespace

Config parse_config(std::string_view content, const std::string& where) {
  Reader in;
  in.where = where;
  in.split_lines(content);

  in.one_of("schema_version", {"1"});
  Config config;
  config.cache = in.one_of("cache", contract_names());
  config.name = in.word("name");
  config.hidden_size = in.number("hidden_size", 1, kMostSize);
  config.head_dim = in.number("head_dim", 2, kMostSize);
  config.num_kv_heads = in.number("num_kv_heads", 1, kMostSize);
  config.num_layers = in.number("num_layers", 1, kMostSize);
  config.vocab_size = in.number("vocab_size", 1, kMostTokens);
  config.cache_length = in.number("cache_length", 2, kMostTokens);
  config.prompt_tokens = in.numbers("prompt_tokens", 2, kMostTokens);
  config.stop_ids = in.numbers("stop_ids", 0, kMostTokens);
  config.pad_id = in.number("pad_id", 0, kMostTokens);
  config.embedding = read_embedding(in);
  config.rope_path = in.inner_path("rope.path");
  config.rope_positions = in.number("rope.positions", 1, kMostTokens);
  if (config.prompt_tokens.empty() && in.entries.count("prompt_tokens") && in.entries["prompt_tokens"].value.empty()) {
    in.problem(in.line_of("prompt_tokens"), "'prompt_tokens' is empty");
  }
  check_agreement(in, config);

  // Every chunk needs lines of its own, so a count beyond the lines is wrong before any loop over it.
  const int64_t chunks = in.number("chunks", 1, std::min<int64_t>(kMostSize, static_cast<int64_t>(in.entries.size())));
  int64_t layers = 0;
  for (int64_t k = 0; k < chunks; ++k) {
    ChunkConfig chunk;
    chunk.layers = in.number(text("chunk.", k, ".layers"), 1, kMostSize);
    layers += chunk.layers;
    std::vector<int64_t> shapes = config.prompt_tokens;
    shapes.push_back(1);
    for (int64_t tokens : shapes) {
      const std::string key = text("chunk.", k, ".method.", tokens);
      MethodFile& method = chunk.methods[tokens];
      method.path = in.inner_path(key + ".path");
      method.name = in.word(key + ".name");
    }
    config.chunks.push_back(std::move(chunk));
  }
  if (in.problems.empty() && layers != config.num_layers) {
    in.problem(in.line_of("num_layers"), text("'num_layers' is ", config.num_layers, ", but the chunks have ", layers));
  }
  for (const auto& [key, entry] : in.entries) {
    if (!entry.used) in.problem(entry.line, text("unknown key '", key, "'"));
  }
  if (!in.problems.empty()) throw config_failure(list_problems(in.problems));
  return config;
}

Config read_config(const std::string& path) {
  const std::string content = read_file(path, kMostFileBytes);
  Config config = parse_config(content, path);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  config.embedding.path.insert(0, folder);
  config.rope_path.insert(0, folder);
  for (ChunkConfig& chunk : config.chunks) {
    for (auto& [tokens, method] : chunk.methods) method.path.insert(0, folder);
  }
  return config;
}

}  // namespace etcli
