/* What version 1 of the interface declared, as apps have compiled it in: it never changes. */
#ifndef ETCLI_RUNNER_H
#define ETCLI_RUNNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define ETCLI_RUNNER_API 1

int32_t etcli_runner_api(void);

const char* etcli_runner_version(void);

typedef enum etcli_runner_status {
  ETCLI_RUNNER_OK = 0,
  ETCLI_RUNNER_STOPPED = 1,
  ETCLI_RUNNER_USAGE = 2,
  ETCLI_RUNNER_LOAD = 3,
  ETCLI_RUNNER_TENSOR = 4,
  ETCLI_RUNNER_EXECUTE = 5,
  ETCLI_RUNNER_BUSY = 6
} etcli_runner_status;

const char* etcli_runner_last_error(void);
const char* etcli_runner_last_code(void);

typedef struct etcli_runner etcli_runner;

typedef struct etcli_runner_load_options {
  size_t size;
  int32_t threads;
  int32_t verbose;
} etcli_runner_load_options;
#define ETCLI_RUNNER_LOAD_OPTIONS_INIT {sizeof(etcli_runner_load_options), 0, 0}

etcli_runner_status etcli_runner_load(const char* config, const etcli_runner_load_options* options, etcli_runner** runner);

etcli_runner_status etcli_runner_free(etcli_runner* runner);

typedef struct etcli_runner_info {
  size_t size;
  int32_t vocabulary;
  int32_t context;
  int32_t room;
  int32_t threads;
} etcli_runner_info;
#define ETCLI_RUNNER_INFO_INIT {sizeof(etcli_runner_info), 0, 0, 0, 0}

etcli_runner_status etcli_runner_get_info(etcli_runner* runner, etcli_runner_info* info);

etcli_runner_status etcli_runner_reset(etcli_runner* runner);

etcli_runner_status etcli_runner_prefill(etcli_runner* runner, const int32_t* ids, size_t count);

typedef struct etcli_runner_decode_options {
  size_t size;
  int32_t max_new_tokens;
  int32_t ignore_stop_ids;
} etcli_runner_decode_options;
#define ETCLI_RUNNER_DECODE_OPTIONS_INIT {sizeof(etcli_runner_decode_options), 64, 0}

typedef enum etcli_runner_reason {
  ETCLI_RUNNER_NO_REASON = 0,
  ETCLI_RUNNER_STOP_ID = 1,
  ETCLI_RUNNER_MAX_NEW_TOKENS = 2,
  ETCLI_RUNNER_CACHE_FULL = 3,
  ETCLI_RUNNER_WAS_STOPPED = 4
} etcli_runner_reason;

typedef int32_t (*etcli_runner_on_token)(void* user, int32_t id, int64_t index);

etcli_runner_status etcli_runner_decode(etcli_runner* runner, const etcli_runner_decode_options* options, etcli_runner_on_token on_token,
                                        void* user, etcli_runner_reason* reason);

void etcli_runner_stop(etcli_runner* runner);

typedef struct etcli_runner_stats {
  size_t size;
  int64_t prompt_tokens;
  int64_t new_tokens;
  int64_t decode_steps;
  double load_s;
  double prefill_s;
  double decode_s;
} etcli_runner_stats;
#define ETCLI_RUNNER_STATS_INIT {sizeof(etcli_runner_stats), 0, 0, 0, 0, 0, 0}

etcli_runner_status etcli_runner_get_stats(etcli_runner* runner, etcli_runner_stats* stats);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
