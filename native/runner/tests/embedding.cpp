#include "embedding.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "failing.h"
#include "temporary.h"

using namespace etcli;

namespace {

void append(std::string& bytes, float value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }

std::vector<float> row_of(const Embedding& embedding, int64_t id) {
  std::vector<float> row(static_cast<size_t>(embedding.config.cols), 77.0f);
  embedding.copy_row(row.data(), id);
  return row;
}

EmbeddingConfig written(const TemporaryFolder& folder, const std::string& bytes, const char* dtype, int64_t group_size, int64_t rows, int64_t cols) {
  EmbeddingConfig config{folder.path + "/embedding.bin", dtype, group_size, rows, cols};
  write_file(config.path, bytes.data(), bytes.size());
  return config;
}

}  // namespace

TEST_CASE("float32 rows") {
  const TemporaryFolder folder;
  std::string bytes;
  for (float value : {1.0f, -2.5f, 0.0f, 3e38f, -10.0f, 7.0f}) append(bytes, value);
  const Embedding embedding(written(folder, bytes, "float32", 0, 2, 3));
  CHECK(row_of(embedding, 0) == std::vector<float>{1.0f, -2.5f, 0.0f});
  CHECK(row_of(embedding, 1) == std::vector<float>{3e38f, -10.0f, 7.0f});
}

TEST_CASE("float16 rows") {
  const TemporaryFolder folder;
  const unsigned char bytes[] = {0, 0, 0, 0, 0x00, 0x3C, 0x00, 0xC0, 0x01, 0x00, 0x00, 0x7C};  // 0, 0; 1, -2; 2^-24, infinity
  const Embedding embedding(written(folder, std::string(reinterpret_cast<const char*>(bytes), sizeof bytes), "float16", 0, 3, 2));
  CHECK(row_of(embedding, 1) == std::vector<float>{1.0f, -2.0f});
  CHECK(row_of(embedding, 2) == std::vector<float>{0x1p-24f, std::numeric_limits<float>::infinity()});
}

TEST_CASE("int8 rows: scales of all groups, then signed codes") {
  const TemporaryFolder folder;
  std::string bytes(6 + 8, '\0');  // row 0: two scales of 0 and codes of 0; rows of 14 bytes are not aligned
  append(bytes, 0.5f);
  append(bytes, 2.0f);
  for (int code : {-128, 127, 1, -1, 0, 3}) bytes += static_cast<char>(code);
  const Embedding embedding(written(folder, bytes, "int8", 3, 2, 6));
  CHECK(row_of(embedding, 0) == std::vector<float>(6, 0.0f));
  CHECK(row_of(embedding, 1) == std::vector<float>{-64.0f, 63.5f, 0.5f, -2.0f, 0.0f, 6.0f});
}

TEST_CASE("int4 rows: codes plus 8, the even column in the low half, groups of odd size") {
  const TemporaryFolder folder;
  std::string bytes;
  append(bytes, 0.25f);
  append(bytes, -4.0f);
  for (int pair : {0xF0, 0x98, 0x07}) bytes += static_cast<char>(pair);  // 0 15 | 8 9 | 7 0: codes -8 7 0 1 -1 -8
  const Embedding embedding(written(folder, bytes + bytes, "int4", 3, 2, 6));
  for (int64_t id : {0, 1}) CHECK(row_of(embedding, id) == std::vector<float>{-2.0f, 1.75f, 0.0f, -4.0f, 4.0f, 32.0f});
}

TEST_CASE("a row's bytes") {
  CHECK(embedding_format("float32").row_bytes(576, 0) == 2304);
  CHECK(embedding_format("float16").row_bytes(576, 0) == 1152);
  CHECK(embedding_format("int8").row_bytes(576, 32) == 18 * 4 + 576);
  CHECK(embedding_format("int4").row_bytes(576, 576) == 4 + 288);
}

TEST_CASE("a file of another size is refused by its numbers") {
  const TemporaryFolder folder;
  const std::string bytes(40, '\0');
  for (const char* dtype : {"float32", "float16", "int8", "int4"}) {
    const Failure failure = failure_of([&] { Embedding{written(folder, bytes, dtype, 4, 3, 8)}; });
    CHECK(std::string(failure.code) == "runner.file");
    CHECK(contains(failure.what(), "embedding.bin has 40 bytes, the " + std::string(dtype) + " embedding of [3, 8]"));
  }
  CHECK(contains(failure_of([&] { Embedding{written(folder, bytes, "int8", 4, 3, 8)}; }).what(), "in groups of 4 needs 48"));
  CHECK(contains(failure_of([&] { Embedding{written(folder, bytes, "int4", 4, 3, 8)}; }).what(), "in groups of 4 needs 36"));
}
