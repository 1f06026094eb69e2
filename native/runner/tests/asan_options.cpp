// Too much memory is an answer to test here, not an end.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
