#define ETCLI_ATTEND attend_baseline
#include "attend.inc"
