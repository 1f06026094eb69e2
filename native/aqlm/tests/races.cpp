// Calls on several threads, for ThreadSanitizer to watch; threads are plain ones, whose beginning and end it knows.
#include <cstdio>
#include <thread>

#include "example.h"

using namespace etcli::aqlm;

static void on_threads(int64_t threads, void (*work)(void* context, int64_t thread), void* context) {
  std::vector<std::thread> others;
  for (int64_t thread = 1; thread < threads; ++thread) others.emplace_back(work, context, thread);
  work(context, 0);
  for (std::thread& other : others) other.join();
}

int main() {
  int calls = 0;
  for (const Version& version : usable_versions()) {
    for (const Shape& shape : {Shape{1, 200, 2100, 2, true}, Shape{3, 70, 300, 1, true}, Shape{20, 70, 300, 2, false}, Shape{300, 9, 90, 2, true}}) {
      for (int repeat = 0; repeat < 5; ++repeat) {
        Example example(shape), alone(shape);
        for (Example* e : {&example, &alone}) {
          const int64_t threads = e == &alone ? 1 : 4;
          const Call call = e->call();
          const Plan plan(call, version);
          const Scratch scratch(scratch_bytes(plan, threads));
          run(call, plan, threads, scratch.memory.get(), on_threads);
        }
        if (example.out != alone.out) return 1;
        ++calls;
      }
    }
  }
  std::printf("%d calls without a race\n", calls);
}
