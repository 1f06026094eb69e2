#define ETCLI_ATTEND attend_avx512
#if defined(__GNUC__) && !defined(__clang__)
// GCC warns about its own intrinsics, whose unused lanes start undefined (bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include "attend.inc"
