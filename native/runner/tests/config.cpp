#include "config.h"

#include <doctest/doctest.h>

#include <map>

#include "failing.h"

using namespace etcli;

namespace {

const char* kGood =
    "schema_version=1\n"
    "# a comment\n"
    "\n"
    "name=tiny\n"
    "cache=shift\n"
    "hidden_size=64\n"
    "head_dim=16\n"
    "num_kv_heads=2\n"
    "num_layers=3\n"
    "vocab_size=160\n"
    "cache_length=32\n"
    "prompt_tokens=8,4\n"
    "stop_ids=2,5\n"
    "pad_id=0\n"
    "embedding.path=embedding_float32.bin\n"
    "embedding.dtype=float32\n"
    "embedding.rows=160\n"
    "embedding.cols=64\n"
    "rope.path=rope_float32.bin\n"
    "rope.positions=32\n"
    "chunks=2\n"
    "chunk.0.layers=2\n"
    "chunk.0.method.8.path=chunks/tiny_0.pte\n"
    "chunk.0.method.8.name=tiny_8t32c_0\n"
    "chunk.0.method.4.path=chunks/tiny_0.pte\n"
    "chunk.0.method.4.name=tiny_4t32c_0\n"
    "chunk.0.method.1.path=chunks/tiny_0.pte\n"
    "chunk.0.method.1.name=tiny_1t32c_0\n"
    "chunk.1.layers=1\n"
    "chunk.1.method.8.path=chunks/tiny_1.pte\n"
    "chunk.1.method.8.name=tiny_8t32c_1\n"
    "chunk.1.method.4.path=chunks/tiny_1.pte\n"
    "chunk.1.method.4.name=tiny_4t32c_1\n"
    "chunk.1.method.1.path=chunks/tiny_1.pte\n"
    "chunk.1.method.1.name=tiny_1t32c_1\n";

// kGood with the first occurrence of `old` replaced.
std::string with(const std::string& old, const std::string& replacement) {
  std::string text = kGood;
  const size_t at = text.find(old);
  REQUIRE(at != std::string::npos);
  return text.replace(at, old.size(), replacement);
}

}  // namespace

TEST_CASE("a whole configuration is read") {
  const Config config = parse_config(kGood, "runner.cfg");
  CHECK(config.name == "tiny");
  CHECK(config.hidden_size == 64);
  CHECK(config.head_dim == 16);
  CHECK(config.num_kv_heads == 2);
  CHECK(config.num_layers == 3);
  CHECK(config.vocab_size == 160);
  CHECK(config.cache_length == 32);
  CHECK(config.prompt_tokens == std::vector<int64_t>{8, 4});
  CHECK(config.stop_ids == std::vector<int64_t>{2, 5});
  CHECK(config.pad_id == 0);
  CHECK(config.cache == "shift");
  CHECK(config.embedding.path == "embedding_float32.bin");
  CHECK(config.embedding.dtype == "float32");
  CHECK(config.embedding.group_size == 0);
  CHECK(config.rope_positions == 32);
  REQUIRE(config.chunks.size() == 2);
  CHECK(config.chunks[0].layers == 2);
  CHECK(config.chunks[1].methods.at(1).path == "chunks/tiny_1.pte");
  CHECK(config.chunks[1].methods.at(4).name == "tiny_4t32c_1");
  CHECK(config.chunks[1].methods.size() == 3);
}

TEST_CASE("stop ids may be empty, the last line may lack its end, a name may hold an equals sign") {
  CHECK(parse_config(with("stop_ids=2,5", "stop_ids="), "c").stop_ids.empty());
  std::string text = kGood;
  text.pop_back();
  CHECK(parse_config(text, "c").chunks[1].methods.at(1).name == "tiny_1t32c_1");
  CHECK(parse_config(with("name=tiny\n", "name=a=b\n"), "c").name == "a=b");
  CHECK(parse_config(with("embedding.dtype=float32", "embedding.dtype=float16"), "c").embedding.dtype == "float16");
  CHECK(parse_config(with("cache=shift", "cache=ring"), "c").cache == "ring");
}

TEST_CASE("a quantised embedding has groups") {
  for (const char* dtype : {"int8", "int4"}) {
    const std::string lines = std::string("embedding.dtype=") + dtype + "\nembedding.group_size=32";
    const Config config = parse_config(with("embedding.dtype=float32", lines), "c");
    CHECK(config.embedding.dtype == dtype);
    CHECK(config.embedding.group_size == 32);
  }
  std::string odd = with("embedding.dtype=float32", "embedding.dtype=int4\nembedding.group_size=1");
  odd.replace(odd.find("embedding.cols=64"), 17, "embedding.cols=63");
  odd.replace(odd.find("hidden_size=64"), 14, "hidden_size=63");
  CHECK(contains(failure_of([&] { parse_config(odd, "c"); }).what(), "'embedding.cols' is 63, not even, as int4 needs"));
}

TEST_CASE("what is wrong is named with its line") {
  struct Case {
    const char* old;
    const char* replacement;
    const char* message;
  };
  const Case cases[] = {
      {"schema_version=1", "schema_version=2", "c:1: 'schema_version' is '2', this runner knows 1"},
      {"schema_version=1\n", "", "c: 'schema_version' is missing"},
      {"cache=shift", "cache=paged", "c:5: 'cache' is 'paged', this runner knows shift or ring"},
      {"name=tiny\n", "name=\n", "c:4: 'name' is empty"},
      {"name=tiny\n", "name=tiny\nname=tiny\n", "c:5: 'name' is given again, first in line 4"},
      {"name=tiny\n", "name=tiny\ncolour=red\n", "c:5: unknown key 'colour'"},
      {"name=tiny\n", "name=tiny\nnonsense\n", "c:5: not of the form key=value: 'nonsense'"},
      {"name=tiny\n", "name=tiny\n=x\n", "c:5: not of the form key=value: '=x'"},
      {"name=tiny\n", "name=tiny\n pad_id=0\n", "unknown key ' pad_id'"},
      {"name=tiny\n", "name=tiny\r\n", "c:4: a control character"},
      {"hidden_size=64", "hidden_size=0", "c:6: 'hidden_size' is '0', not a whole number from 1 to 1048576"},
      {"hidden_size=64", "hidden_size=-64", "'hidden_size' is '-64', not a whole number"},
      {"hidden_size=64", "hidden_size= 64", "'hidden_size' is ' 64', not a whole number"},
      {"hidden_size=64", "hidden_size=64x", "'hidden_size' is '64x', not a whole number"},
      {"hidden_size=64", "hidden_size=0x40", "'hidden_size' is '0x40', not a whole number"},
      {"hidden_size=64", "hidden_size=", "'hidden_size' is '', not a whole number"},
      {"hidden_size=64", "hidden_size=9223372036854775808", "'hidden_size' is '9223372036854775808', not a whole number"},
      {"hidden_size=64", "hidden_size=18446744073709551680", "not a whole number"},
      {"hidden_size=64", "hidden_size=65", "'embedding.cols' is 64, but 'hidden_size' is 65"},
      {"vocab_size=160", "vocab_size=159", "'embedding.rows' is 160, but 'vocab_size' is 159"},
      {"head_dim=16", "head_dim=15", "'head_dim' is 15, not even"},
      {"cache_length=32", "cache_length=33", "'rope.positions' is 32, fewer than the cache_length of 33"},
      {"prompt_tokens=8,4", "prompt_tokens=4,8", "'prompt_tokens' is not in falling order"},
      {"prompt_tokens=8,4", "prompt_tokens=8,8", "'prompt_tokens' is not in falling order"},
      {"prompt_tokens=8,4", "prompt_tokens=", "'prompt_tokens' is empty"},
      {"prompt_tokens=8,4", "prompt_tokens=8,", "'prompt_tokens' holds ''"},
      {"prompt_tokens=8,4", "prompt_tokens=8,1", "'prompt_tokens' holds '1'"},
      {"prompt_tokens=8,4", "prompt_tokens=64,4", "a prompt shape of 64 tokens exceeds the cache_length of 32"},
      {"prompt_tokens=8,4", "prompt_tokens=8", "unknown key 'chunk.0.method.4.name'"},
      {"stop_ids=2,5", "stop_ids=2,160", "stop id 160 is not below the vocab_size of 160"},
      {"pad_id=0", "pad_id=160", "pad id 160 is not below the vocab_size of 160"},
      {"embedding.dtype=float32", "embedding.dtype=int2", "'embedding.dtype' is 'int2', this runner knows float32 or float16 or int8 or int4"},
      {"embedding.dtype=float32", "embedding.dtype=int8", "'embedding.group_size' is missing"},
      {"embedding.dtype=float32", "embedding.dtype=float32\nembedding.group_size=32", "c:17: unknown key 'embedding.group_size'"},
      {"embedding.dtype=float32", "embedding.dtype=int8\nembedding.group_size=0", "c:17: 'embedding.group_size' is '0', not a whole number"},
      {"embedding.dtype=float32", "embedding.dtype=int8\nembedding.group_size=24",
       "c:17: 'embedding.group_size' is 24, which does not divide 'embedding.cols' of 64"},
      {"embedding.dtype=float32", "embedding.dtype=int8\nembedding.group_size=128", "which does not divide"},
      {"rope_float32.bin", "/etc/passwd", "'rope.path' is '/etc/passwd', not a path inside the bundle"},
      {"rope_float32.bin", "a/../../x", "'rope.path' is 'a/../../x', not a path inside the bundle"},
      {"rope.path=rope_float32.bin", "rope.path=", "'rope.path' is '', not a path inside the bundle"},
      {"chunks=2", "chunks=3", "'chunk.2.layers' is missing"},
      {"chunks=2", "chunks=1", "unknown key 'chunk.1.layers'"},
      {"chunks=2", "chunks=1000000000000", "'chunks' is '1000000000000', not a whole number"},
      {"chunk.0.layers=2", "chunk.0.layers=3", "'num_layers' is 3, but the chunks have 4"},
      {"chunk.0.layers=2", "chunk.0.layers=0", "'chunk.0.layers' is '0'"},
      {"chunk.1.method.1.name=tiny_1t32c_1\n", "", "'chunk.1.method.1.name' is missing"},
      {"chunk.0.method.8.name=tiny_8t32c_0", "chunk.0.method.8.name=", "'chunk.0.method.8.name' is empty"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.replacement);
    const Failure failure = failure_of([&] { parse_config(with(c.old, c.replacement), "c"); });
    CHECK(std::string(failure.code) == "runner.config");
    CHECK(failure.status == 2);
    CHECK_MESSAGE(contains(failure.what(), c.message), failure.what());
  }
}

TEST_CASE("all problems are told at once, many of them shortened") {
  std::string text = with("hidden_size=64", "hidden_size=x");
  text.replace(text.find("pad_id=0"), 8, "pad_id=y");
  const Failure failure = failure_of([&] { parse_config(text, "c"); });
  CHECK(contains(failure.what(), "hidden_size"));
  CHECK(contains(failure.what(), "pad_id"));

  const std::string empty = failure_of([] { parse_config("", "c"); }).what();
  CHECK(contains(empty, "'schema_version' is missing"));
  CHECK(contains(empty, " more"));
}
