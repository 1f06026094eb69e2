// A folder that goes away with all its files.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

struct TemporaryFolder {
  TemporaryFolder() {
    char pattern[] = "/tmp/etcli-test-XXXXXX";
    REQUIRE(::mkdtemp(pattern) != nullptr);
    path = pattern;
  }
  ~TemporaryFolder() {
    if (DIR* folder = ::opendir(path.c_str())) {
      while (const dirent* entry = ::readdir(folder)) ::unlink((path + "/" + entry->d_name).c_str());
      ::closedir(folder);
    }
    ::rmdir(path.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path;
};
