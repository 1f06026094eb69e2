#define ETCLI_LOOP loop_avx2
#define ETCLI_LOOP_TABLES loop_avx2_tables
#include "loop.inc"
