// print_split LENGTH SHAPE...: the calls for prompts of 1 to LENGTH tokens, one prompt a line, each call as TOKENS:PADDING.
#include <cstdio>
#include <cstdlib>

#include "split.h"

int main(int argc, char** argv) {
  std::vector<int64_t> shapes;
  for (int i = 2; i < argc; ++i) shapes.push_back(std::atoll(argv[i]));
  const int64_t most = argc > 2 ? std::atoll(argv[1]) : 0;
  for (int64_t length = 1; length <= most; ++length) {
    for (const etcli::Call& call : etcli::split_prompt(length, shapes)) {
      std::printf("%lld:%lld ", static_cast<long long>(call.tokens), static_cast<long long>(call.padding));
    }
    std::printf("\n");
  }
}
