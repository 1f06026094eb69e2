#include "model.h"

#include "clock.h"
#include "failure.h"
#include "inputs.h"

namespace etcli {

namespace {

void check_rope(const Config& config, const MappedFile& file) {
  const size_t expected =
      TensorNeed{"rotary table", executorch::aten::ScalarType::Float, {config.rope_positions, 2, config.head_dim}}.bytes();
  if (file.size != expected) {
    throw file_failure(text(config.rope_path, " has ", file.size, " bytes, the rotary table of ",
                            shape_text({config.rope_positions, 2, config.head_dim}), " with 4 bytes each needs ", expected,
                            "; the file is not whole or not of this runner.cfg, export and deploy both again"));
  }
}

// Several methods share a buffer, each using its start.
void reserve(Buffer& buffer, const TensorNeed& need) {
  const size_t bytes = need.bytes();
  if (bytes > buffer.bytes) buffer = Buffer(bytes);
}

}  // namespace

Model::Model(Config from)
    : config(std::move(from)), contract(contract_of(config.cache)), embedding(config.embedding), rope(config.rope_path) {
  check_rope(config, rope);
  const Programs programs = open_programs();
  load_chunks(programs);
  pad_row.resize(static_cast<size_t>(config.hidden_size));
  embedding.copy_row(pad_row.data(), config.pad_id);
  chunk_seconds.assign(chunks.size(), 0.0);
}

// A program is opened once even when several methods come from it, and every tensor is checked before any weight is touched.
Model::Programs Model::open_programs() const {
  Programs programs;
  std::vector<std::string> problems;
  for (size_t k = 0; k < config.chunks.size(); ++k) {
    for (const auto& [tokens, file] : config.chunks[k].methods) {
      auto& program = programs[file.path];
      if (program == nullptr) program = std::make_shared<const Program>(file.path);
      const auto meta = program->meta(file.name);
      check_tensors(text(program->path, ", method '", file.name, "'"), input_facts(meta), output_facts(meta),
                    contract.signature(config, config.chunks[k].layers, is_last(k), tokens), problems);
    }
  }
  if (!problems.empty()) {
    throw tensor_failure(text(list_problems(problems), "; runner.cfg (cache=", config.cache,
                              ") and the programs have to come from one export: export and deploy them together"));
  }
  return programs;
}

void Model::load_chunks(const Programs& programs) {
  for (size_t k = 0; k < config.chunks.size(); ++k) {
    for (const auto& [tokens, file] : config.chunks[k].methods) {
      const Signature needs = contract.signature(config, config.chunks[k].layers, is_last(k), tokens);
      reserve(hidden[k % 2], needs.inputs[0]);
      reserve(guide, needs.inputs[1]);
      reserve(rotary, needs.inputs[2]);
      reserve(is_last(k) ? logits : hidden[(k + 1) % 2], needs.outputs[0]);
    }
  }
  for (size_t k = 0; k < config.chunks.size(); ++k) {
    Chunk& chunk = chunks.emplace_back();
    chunk.layers = config.chunks[k].layers;
    const Buffer& output = is_last(k) ? logits : hidden[(k + 1) % 2];
    for (const auto& [tokens, file] : config.chunks[k].methods) {
      const Signature needs = contract.signature(config, chunk.layers, is_last(k), tokens);
      for (size_t i = chunk.caches.size(); i < needs.inputs.size() - kFirstCacheInput; ++i) {
        chunk.caches.emplace_back(needs.inputs[kFirstCacheInput + i].bytes());
      }
      auto& method = chunk.methods[tokens];
      method = std::make_unique<Method>(programs.at(file.path), file.name, scratch);
      // Bound once: unplanned tensors keep pointing to these buffers.
      method->set_input(0, hidden[k % 2].data());
      method->set_input(1, guide.data());
      method->set_input(2, rotary.data());
      method->set_output(0, output.data(), output.bytes);
      for (size_t i = 0; i < chunk.caches.size(); ++i) {
        // In place: the new cache is written over the old one.
        method->set_input(kFirstCacheInput + i, chunk.caches[i].data());
        method->set_output(kFirstCacheOutput + i, chunk.caches[i].data(), chunk.caches[i].bytes);
      }
    }
  }
}

const float* Model::forward(const int64_t* ids, int64_t rows, int64_t tokens) {
  const CallRows call{rows, tokens, contract.first_row(rows - tokens), seen};
  for (int64_t i = 0; i < rows; ++i) {
    float* row = hidden[0].floats() + i * config.hidden_size;
    const int64_t index = i - call.first_row;
    if (index >= 0 && index < tokens) {
      embedding.copy_row(row, ids[index]);
    } else {
      contract.fill_padding(row, pad_row.data(), config.hidden_size);
    }
  }
  used = true;
  contract.fill_guide(guide.data(), call, config.cache_length);
  fill_rotary(rotary.floats(), reinterpret_cast<const float*>(rope.data), config.head_dim, rows, call.first_row, tokens, seen);

  for (size_t k = 0; k < chunks.size(); ++k) {
    const double start = now();
    chunks[k].methods.at(rows)->execute();
    chunk_seconds[k] += now() - start;
  }
  if (tokens < rows) {
    for (Chunk& chunk : chunks) {
      for (Buffer& cache : chunk.caches) contract.after_padding(cache.floats(), call, config);
    }
  }
  seen += tokens;
  return logits.floats() + contract.logits_row(call) * config.vocab_size;
}

void Model::reset() {
  if (!used) return;
  for (Chunk& chunk : chunks) {
    for (Buffer& cache : chunk.caches) contract.clear(cache.floats(), config);
  }
  seen = 0;
  used = false;
}

}  // namespace etcli
