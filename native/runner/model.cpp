#include "model.h"

#include <algorithm>
#include <cstring>

#include "clock.h"
#include "failure.h"
#include "inputs.h"
#include "numbers.h"

namespace etcli {

namespace {

using executorch::aten::ScalarType;

// One problem a line, naming file, tensor, what was found and what the configuration needs.
struct TensorCheck {
  std::string where;
  std::vector<std::string>& problems;

  void tensor(const char* direction, size_t index, const std::string& role, const TensorFacts& found, const std::vector<int64_t>& sizes) {
    const std::string label = text(where, ": ", direction, " ", index, " (", role, ")");
    if (!found.is_tensor) {
      problems.push_back(text(label, " is of kind ", found.kind, ", not a tensor"));
    } else if (found.dtype != ScalarType::Float || found.sizes != sizes) {
      problems.push_back(text(label, " is ", dtype_name(found.dtype), " ", shape_text(found.sizes), ", the configuration needs float32 ",
                              shape_text(sizes)));
    } else if (!is_contiguous(found.dim_order)) {
      problems.push_back(text(label, " is not laid out in row-major order"));
    } else if (found.planned) {
      problems.push_back(text(label, " has planned memory; export with inputs and outputs left out of memory planning"));
    }
  }

  void count(const char* direction, size_t found, int64_t layers) {
    const size_t expected = static_cast<size_t>(2 * layers) + (std::strcmp(direction, "inputs") == 0 ? 3 : 1);
    if (found != expected) problems.push_back(text(where, ": ", found, " ", direction, ", ", layers, " layers need ", expected));
  }
};

std::string cache_role(size_t i, size_t layers) {
  return i < layers ? text("key cache ", i) : text("value cache ", i - layers);
}

void check_method(const Config& config, int64_t layers, bool is_last, int64_t tokens, const Program& program, const std::string& name,
                  std::vector<std::string>& problems) {
  const auto meta = program.meta(name);
  const std::vector<TensorFacts> inputs = input_facts(meta), outputs = output_facts(meta);
  TensorCheck check{text(program.path, ", method '", name, "'"), problems};
  check.count("inputs", inputs.size(), layers);
  check.count("outputs", outputs.size(), layers);
  const size_t caches = static_cast<size_t>(2 * layers);
  if (inputs.size() != 3 + caches || outputs.size() != 1 + caches) return;

  check.tensor("input", 0, "hidden", inputs[0], {1, tokens, config.hidden_size});
  check.tensor("input", 1, "mask", inputs[1], {1, 1, tokens, config.cache_length + tokens});
  check.tensor("input", 2, "rotary", inputs[2], {1, 2, tokens, config.head_dim});
  check.tensor("output", 0, is_last ? "logits" : "hidden", outputs[0], {1, tokens, is_last ? config.vocab_size : config.hidden_size});
  const std::vector<int64_t> cache = {1, config.num_kv_heads, config.cache_length, config.head_dim};
  for (size_t i = 0; i < caches; ++i) {
    check.tensor("input", 3 + i, cache_role(i, caches / 2), inputs[3 + i], cache);
    check.tensor("output", 1 + i, cache_role(i, caches / 2), outputs[1 + i], cache);
  }
}

size_t float_bytes(const std::vector<int64_t>& sizes, size_t element = sizeof(float)) {
  const auto count = product(sizes);
  if (!count || *count > INT64_MAX / static_cast<int64_t>(element)) {
    throw config_failure(text("a tensor of ", shape_text(sizes), " is too large"));
  }
  return static_cast<size_t>(*count) * element;
}

void check_size(const std::string& path, const MappedFile& file, const char* what, const std::vector<int64_t>& sizes, size_t element) {
  const size_t expected = float_bytes(sizes, element);
  if (file.size != expected) {
    throw file_failure(text(path, " has ", file.size, " bytes, the ", what, " of ", shape_text(sizes), " with ", element,
                            " bytes each needs ", expected));
  }
}

}  // namespace

Model::Model(Config from) : config(std::move(from)), embedding(config.embedding_path), rope(config.rope_path) {
  check_size(config.embedding_path, embedding, "embedding", {config.embedding_rows, config.embedding_cols}, config.embedding_is_half ? 2 : 4);
  check_size(config.rope_path, rope, "rotary table", {config.rope_positions, 2, config.head_dim}, 4);
  embedding.expect_random_access();

  // A program is opened once even when several methods come from it, and every tensor is checked before any weight is touched.
  std::map<std::string, std::shared_ptr<const Program>> programs;
  std::vector<std::string> problems;
  for (size_t k = 0; k < config.chunks.size(); ++k) {
    const bool is_last = k + 1 == config.chunks.size();
    for (const auto& [tokens, file] : config.chunks[k].methods) {
      auto& program = programs[file.path];
      if (program == nullptr) program = std::make_shared<const Program>(file.path);
      check_method(config, config.chunks[k].layers, is_last, tokens, *program, file.name, problems);
    }
  }
  if (!problems.empty()) throw tensor_failure(list_problems(problems));

  const int64_t most = config.prompt_tokens.front();  // buffers serve every T, filled from their start
  for (Buffer& buffer : hidden) buffer = Buffer(float_bytes({most, config.hidden_size}));
  logits = Buffer(float_bytes({most, config.vocab_size}));
  mask = Buffer(float_bytes({most, config.cache_length + most}));
  rotary = Buffer(float_bytes({2, most, config.head_dim}));
  const size_t cache_bytes = float_bytes({config.num_kv_heads, config.cache_length, config.head_dim});
  for (size_t k = 0; k < config.chunks.size(); ++k) {
    Chunk& chunk = chunks.emplace_back();
    chunk.layers = config.chunks[k].layers;
    for (int64_t i = 0; i < 2 * chunk.layers; ++i) chunk.caches.emplace_back(cache_bytes);
    const bool is_last = k + 1 == config.chunks.size();
    const Buffer& output = is_last ? logits : hidden[(k + 1) % 2];
    for (const auto& [tokens, file] : config.chunks[k].methods) {
      auto& method = chunk.methods[tokens];
      method = std::make_unique<Method>(programs[file.path], file.name);
      // Bound once: unplanned tensors keep pointing to these buffers.
      method->set_input(0, hidden[k % 2].memory.get());
      method->set_input(1, mask.memory.get());
      method->set_input(2, rotary.memory.get());
      method->set_output(0, output.memory.get(), output.bytes);
      for (size_t i = 0; i < chunk.caches.size(); ++i) {
        // In place: the new cache is written over the old one (contract "shift").
        method->set_input(3 + i, chunk.caches[i].memory.get());
        method->set_output(1 + i, chunk.caches[i].memory.get(), cache_bytes);
      }
    }
  }
  chunk_seconds.assign(chunks.size(), 0.0);
}

const float* Model::forward(const int64_t* ids, int64_t tokens, int64_t padding) {
  const int64_t width = config.hidden_size;
  const size_t row_bytes = static_cast<size_t>(width) * (config.embedding_is_half ? 2 : 4);
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t id = i < padding ? config.pad_id : ids[i - padding];
    copy_row(hidden[0].floats() + i * width, embedding.data + static_cast<size_t>(id) * row_bytes, config.embedding_is_half, width);
  }
  fill_mask(mask.floats(), tokens, config.cache_length, seen, padding);
  fill_rotary(rotary.floats(), reinterpret_cast<const float*>(rope.data), config.head_dim, tokens, seen, padding);

  for (size_t k = 0; k < chunks.size(); ++k) {
    const double start = now();
    chunks[k].methods.at(tokens)->execute();
    chunk_seconds[k] += now() - start;
  }
  if (padding > 0) {
    for (Chunk& chunk : chunks) {
      for (Buffer& cache : chunk.caches) {
        clear_left_padding(cache.floats(), config.num_kv_heads, config.cache_length, config.head_dim, tokens, padding);
      }
    }
  }
  seen += tokens - padding;
  return logits.floats() + (tokens - 1) * config.vocab_size;
}

void Model::reset() {
  for (Chunk& chunk : chunks) {
    for (Buffer& cache : chunk.caches) std::memset(cache.memory.get(), 0, cache.bytes);
  }
  seen = 0;
}

}  // namespace etcli
