// A performance library for tests (fake.h).
#include "fake.h"

static FakePerformance fake;

extern "C" {

FakePerformance* fake_performance() { return &fake; }

int32_t acquirePerformanceLockInternal(int32_t handle, int32_t mode, uint32_t milliseconds) {
  fake.last_handle = handle;
  fake.last_mode = mode;
  fake.last_milliseconds = milliseconds;
  ++fake.acquisitions;
  return 77;
}
bool releasePerformanceLockInternal(int32_t handle) {
  fake.last_handle = handle;
  ++fake.releases;
  return true;
}

}  // extern "C"
