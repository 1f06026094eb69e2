#define ETCLI_ATTEND attend_avx2
#include "attend.inc"
