#define ETCLI_LOOP loop_native
#define ETCLI_LOOP_TABLES loop_native_tables
#include "loop.inc"
