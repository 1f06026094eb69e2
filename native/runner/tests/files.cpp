#include "files.h"

#include <doctest/doctest.h>

#include <cstring>

#include "failing.h"
#include "temporary.h"

using namespace etcli;

TEST_CASE("what is written is read and mapped back") {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a";
  write_file(path, "old content", 11);
  write_file(path, "ab\0c", 4);
  CHECK(read_file(path, 4) == std::string("ab\0c", 4));
  const MappedFile mapped(path);
  REQUIRE(mapped.size == 4);
  CHECK(std::memcmp(mapped.data, "ab\0c", 4) == 0);
  CHECK(contains(failure_of([&] { read_file(path, 3); }).what(), "has 4 bytes, at most 3"));
}

TEST_CASE("an empty file is empty") {
  const TemporaryFolder folder;
  write_file(folder.path + "/empty", "", 0);
  CHECK(MappedFile(folder.path + "/empty").size == 0);
  CHECK(read_file(folder.path + "/empty", 10).empty());
}

TEST_CASE("what cannot be read or written is named") {
  const TemporaryFolder folder;
  for (const std::string& path : {folder.path + "/missing", folder.path}) {
    for (const Failure& failure : {failure_of([&] { MappedFile{path}; }), failure_of([&] { read_file(path, 9); })}) {
      CHECK(std::string(failure.code) == "runner.file");
      CHECK(failure.status == 3);
      CHECK(contains(failure.what(), path));
    }
  }
  CHECK(contains(failure_of([&] { write_file(folder.path + "/no/x", "", 0); }).what(), "No such file or directory"));
}
