// What one call takes, in microseconds: each version and the straightforward loop (loop.inc), turn by turn, the median of many turns.
//
//   aqlm_speed [THREADS [TOKENS [IN OUT]]]
//
// A call of one token meets codes that are not in any cache, as in a model: 160 MiB of them take turns.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "../../testing/pool.h"
#include "../threads.h"
#include "example.h"

namespace etcli::aqlm {
using Loop = void (*)(const Call& call, int64_t token, const float* tables, int64_t begin, int64_t end);
using LoopTables = void (*)(const Call& call, int64_t token, const float* transposed, float* tables, int64_t begin, int64_t end);
void loop_native(const Call& call, int64_t token, const float* tables, int64_t begin, int64_t end);
void loop_native_tables(const Call& call, int64_t token, const float* transposed, float* tables, int64_t begin, int64_t end);
#if defined(ETCLI_LOOP_AVX2)
void loop_avx2(const Call& call, int64_t token, const float* tables, int64_t begin, int64_t end);
void loop_avx2_tables(const Call& call, int64_t token, const float* transposed, float* tables, int64_t begin, int64_t end);
#endif
}  // namespace etcli::aqlm

using namespace etcli::aqlm;

namespace {

// The loop on some threads: tables shared out by groups, then outputs.
void run_loop(const Call& call, int64_t threads, Loop loop, LoopTables fill) {
  static std::vector<float> tables, transposed;
  tables.resize(static_cast<size_t>(call.groups * call.books * kEntries));
  transposed.resize(static_cast<size_t>(call.books * kEntries * kGroup));
  const int64_t entries = call.books * kEntries;
  for (int64_t k = 0; k < kGroup; ++k) {
    for (int64_t e = 0; e < entries; ++e) transposed[static_cast<size_t>(k * entries + e)] = call.codebooks[e * kGroup + k];
  }
  struct Shared {
    const Call& call;
    int64_t threads, token;
    Loop loop;
    LoopTables fill;
  } shared{call, threads, 0, loop, fill};
  const auto in_turn = [&](void (*work)(void*, int64_t)) { threads > 1 ? in_parallel(threads, work, &shared) : work(&shared, 0); };
  for (; shared.token < call.tokens; ++shared.token) {
    in_turn([](void* context, int64_t thread) {
      const Shared& s = *static_cast<Shared*>(context);
      s.fill(s.call, s.token, transposed.data(), tables.data(), s.call.groups * thread / s.threads, s.call.groups * (thread + 1) / s.threads);
    });
    in_turn([](void* context, int64_t thread) {
      const Shared& s = *static_cast<Shared*>(context);
      s.loop(s.call, s.token, tables.data(), s.call.outputs * thread / s.threads, s.call.outputs * (thread + 1) / s.threads);
    });
  }
}

// Microseconds: of this thread where it is the only one, so that what else runs on the machine counts for less; else of the clock.
double now(bool is_alone) {
  timespec time{};
  clock_gettime(is_alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

int main(int count, char** words) {
  const auto word = [&](int i, int64_t otherwise) { return count > i ? std::strtoll(words[i], nullptr, 10) : otherwise; };
  const int64_t threads = word(1, 1), tokens = word(2, 1);
  if (threads < 1 || tokens < 1 || !set_pool(static_cast<uint32_t>(threads))) return 2;
  std::vector<std::pair<int64_t, int64_t>> sizes = {{4096, 4096}, {4096, 14336}, {14336, 4096}, {2048, 2048}, {2048, 8192}};
  if (count > 4) sizes = {{word(3, 0), word(4, 0)}};
  std::vector<Version> versions = usable_versions();
  versions.erase(versions.begin());  // the reference is no contender
  std::printf("%-16s%12s", "in -> out", "loop");
  for (const Version& version : versions) std::printf("%20s", version.name);
  std::printf("   us and times the loop, %d tokens, %d threads\n", static_cast<int>(tokens), static_cast<int>(threads));
  for (const auto& [in, out] : sizes) {
    Example example({tokens, in / kGroup, out, 2, false});
    const Call call = example.call();
    const size_t copies = tokens > 1 ? 1 : (size_t{160} << 20) / example.codes.size() + 1, bytes = example.codes.size();
    std::vector<uint8_t> rotated(copies * bytes);
    for (size_t i = 0; i < rotated.size(); ++i) rotated[i] = example.codes[i % bytes];
    size_t turn = 0;
    const auto next = [&] {
      Call fresh = call;
      fresh.codes = rotated.data() + (turn++ % copies) * bytes;
      return fresh;
    };
    std::vector<std::vector<double>> taken(versions.size() + 2);
    const auto time = [&](size_t row, auto&& work) {
      const Call fresh = next();
      const double start = now(threads == 1);
      work(fresh);
      taken[row].push_back(now(threads == 1) - start);
    };
    std::vector<Scratch> scratch;
    for (const Version& version : versions) scratch.emplace_back(scratch_bytes(Plan(call, version), threads));
    const auto begin = std::chrono::steady_clock::now();
    for (int turns = 0; turns < 5 || (turns < 400 && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1500)); ++turns) {
      for (size_t i = 0; i < versions.size(); ++i) {
        time(i, [&](const Call& fresh) { run(fresh, Plan(fresh, versions[i]), threads, scratch[i].memory.get(), in_parallel); });
      }
      time(versions.size(), [&](const Call& fresh) { run_loop(fresh, threads, loop_native, loop_native_tables); });
#if defined(ETCLI_LOOP_AVX2)
      time(versions.size() + 1, [&](const Call& fresh) { run_loop(fresh, threads, loop_avx2, loop_avx2_tables); });
#endif
    }
    double loop = median(taken[versions.size()]);
    if (!taken.back().empty()) loop = std::min(loop, median(taken.back()));
    char name[40];
    std::snprintf(name, sizeof name, "%d -> %d", static_cast<int>(in), static_cast<int>(out));
    std::printf("%-16s%12.0f", name, loop);
    for (size_t i = 0; i < versions.size(); ++i) std::printf("%12.0f %7.2f", median(taken[i]), loop / median(taken[i]));
    std::printf("\n");
    std::fflush(stdout);
  }
}
