// One call from beginning to end: new rows into the caches, then the work items, then their results put together.
#pragma once

#include "attention.h"

namespace etcli::attention {

// How a call is cut up. It depends on the call's sizes alone and every part is summed in a fixed order, so that the result has the same
// bits whatever the number of threads.
struct Plan {
  int64_t items_per_head;  // of a KV head: groups of neighbouring queries times spans
  int64_t query_groups;
  int64_t spans;           // parts of the slots; above 1 only where there are few queries
  int64_t span;            // slots of each, but the last
  bool is_large;           // worth more than one thread

  explicit Plan(const Call& call);
};

// Floats of working memory that `run` needs: a few rows a thread, and with several spans their results (at most 32 for a query).
int64_t scratch_floats(const Call& call, const Plan& plan, int64_t threads);

// Writes the new rows into the caches and every row of out. `scratch` holds scratch_floats of the same arguments.
void run(const Call& call, const Plan& plan, Attend attend, int64_t threads, float* scratch);

}  // namespace etcli::attention
