#include "embedding.h"

#include <executorch/runtime/core/exec_aten/exec_aten.h>

#include <cstring>

#include "failure.h"

namespace etcli {

namespace {

float scale_at(const unsigned char* row, int64_t group) {
  float scale = 0;
  std::memcpy(&scale, row + group * 4, sizeof scale);
  return scale;
}

void decode_float32(float* out, const unsigned char* row, int64_t cols, int64_t) {
  std::memcpy(out, row, static_cast<size_t>(cols) * sizeof(float));
}

void decode_float16(float* out, const unsigned char* row, int64_t cols, int64_t) {
  for (int64_t i = 0; i < cols; ++i) {
    executorch::aten::Half value;
    std::memcpy(&value, row + i * 2, 2);
    out[i] = static_cast<float>(value);
  }
}

void decode_int8(float* out, const unsigned char* row, int64_t cols, int64_t group_size) {
  const unsigned char* codes = row + cols / group_size * 4;
  for (int64_t i = 0; i < cols; ++i) out[i] = static_cast<float>(static_cast<int8_t>(codes[i])) * scale_at(row, i / group_size);
}

void decode_int4(float* out, const unsigned char* row, int64_t cols, int64_t group_size) {
  const unsigned char* codes = row + cols / group_size * 4;
  for (int64_t i = 0; i < cols; ++i) {
    const int code = (i % 2 == 0 ? codes[i / 2] & 0xF : codes[i / 2] >> 4) - 8;
    out[i] = static_cast<float>(code) * scale_at(row, i / group_size);
  }
}

constexpr EmbeddingFormat kFormats[] = {
    {"float32", false, 32, decode_float32},
    {"float16", false, 16, decode_float16},
    {"int8", true, 8, decode_int8},
    {"int4", true, 4, decode_int4},
};

}  // namespace

size_t EmbeddingFormat::row_bytes(int64_t cols, int64_t group_size) const {
  const int64_t scales = is_grouped ? cols / group_size * 4 : 0;
  return static_cast<size_t>(scales + cols * bits / 8);
}

std::vector<std::string> embedding_dtypes() {
  std::vector<std::string> all;
  for (const EmbeddingFormat& format : kFormats) all.emplace_back(format.dtype);
  return all;
}

const EmbeddingFormat& embedding_format(const std::string& dtype) {
  for (const EmbeddingFormat& format : kFormats) {
    if (dtype == format.dtype) return format;
  }
  throw config_failure(text("no embedding of '", dtype, "'"));
}

Embedding::Embedding(const EmbeddingConfig& from)
    : config(from), format(embedding_format(from.dtype)), row_bytes(format.row_bytes(from.cols, from.group_size)), file(from.path) {
  const size_t expected = static_cast<size_t>(config.rows) * row_bytes;
  if (file.size != expected) {
    const std::string groups = format.is_grouped ? text(" in groups of ", config.group_size) : "";
    throw file_failure(text(config.path, " has ", file.size, " bytes, the ", config.dtype, " embedding of [", config.rows, ", ", config.cols,
                            "]", groups, " needs ", expected, "; the file is not whole or not of this runner.cfg, export and deploy both again"));
  }
  file.expect_random_access();
}

void Embedding::copy_row(float* out, int64_t id) const {
  format.decode(out, file.data + static_cast<size_t>(id) * row_bytes, config.cols, config.group_size);
}

}  // namespace etcli
