/* The runner as a library: a Llama model that etcli exported, from token ids to token ids (docs/android-library.md).
 *
 *     etcli_runner* runner = NULL;
 *     etcli_runner_load_options load = ETCLI_RUNNER_LOAD_OPTIONS_INIT;
 *     if (etcli_runner_load("bundle/runner.cfg", &load, &runner) != ETCLI_RUNNER_OK) fail(etcli_runner_last_error());
 *     etcli_runner_prefill(runner, ids, count);
 *     etcli_runner_decode_options decode = ETCLI_RUNNER_DECODE_OPTIONS_INIT;
 *     etcli_runner_decode(runner, &decode, on_token, state, &reason);
 *     etcli_runner_free(runner);
 *
 * Texts become ids and ids become texts in the app: the bundle has the tokenizer's file.
 *
 * Threads: any thread may call, one at a time for each runner; a call while another one runs in the same runner is ETCLI_RUNNER_BUSY and
 * changes nothing. etcli_runner_stop alone may be called at any time by any thread, a callback too.
 * Errors: a function that returns a status gives what went wrong to etcli_runner_last_error() and etcli_runner_last_code() of the same thread.
 * Nothing is thrown out of the library. A check that fails inside the runtime, or memory that is not there for it, ends the process as any
 * failed assertion does, with its words in the log.
 * The log: logcat under the tag "etcli" on Android, stderr elsewhere.
 *
 * Versions: what is here stays as it is; more may come with a higher ETCLI_RUNNER_API. Structs begin with their size, which the _INIT macros
 * set, so that a library knows which members its caller has; it fills in those macros' values for the others.
 * 2: temperature, top_p and seed in etcli_runner_decode_options.
 */
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

#define ETCLI_RUNNER_API 2

/* The ETCLI_RUNNER_API that the library was built with. Where it is less than the caller's own, functions are missing and members of structs
 * are passed over: an app that may meet an older library asks before anything else. */
int32_t etcli_runner_api(void);

/* "0.1.0 (ExecuTorch 1.5.1)": the releases of etcli and ExecuTorch that the library was built from. */
const char* etcli_runner_version(void);

typedef enum etcli_runner_status {
  ETCLI_RUNNER_OK = 0,
  ETCLI_RUNNER_STOPPED = 1, /* a prompt was ended by etcli_runner_stop */
  ETCLI_RUNNER_USAGE = 2,   /* arguments, configuration or prompt: runner.usage, runner.config, runner.prompt */
  ETCLI_RUNNER_LOAD = 3,    /* files, programs, memory: runner.file, runner.load, runner.method, runner.memory */
  ETCLI_RUNNER_TENSOR = 4,  /* programs that do not fit the configuration: runner.tensor */
  ETCLI_RUNNER_EXECUTE = 5, /* runner.execute */
  ETCLI_RUNNER_BUSY = 6     /* runner.busy: another call runs in this runner */
} etcli_runner_status;

/* What the latest failed call of this thread met, in words and as a stable code ("runner.file"; docs/runner-protocol.md). Empty before any.
 * Valid until this thread's next call that returns a status. */
const char* etcli_runner_last_error(void);
const char* etcli_runner_last_code(void);

/* A loaded model and its conversation. */
typedef struct etcli_runner etcli_runner;

typedef struct etcli_runner_load_options {
  size_t size;
  int32_t threads; /* of the CPU backends, for the whole process: 0 leaves them as they are. Another number than that of a runner that is
                      still loaded is ETCLI_RUNNER_USAGE */
  int32_t verbose; /* not 0: the runtime's informational messages in the log too, from the process's first load on */
} etcli_runner_load_options;
#define ETCLI_RUNNER_LOAD_OPTIONS_INIT {sizeof(etcli_runner_load_options), 0, 0}

/* Loads and checks everything that `config`, a bundle's runner.cfg, names. Seconds for a large model. `options` may be NULL.
 * `*runner` is NULL unless it is ETCLI_RUNNER_OK. */
etcli_runner_status etcli_runner_load(const char* config, const etcli_runner_load_options* options, etcli_runner** runner);

/* Ends the running call as etcli_runner_stop does, waits for it and gives everything back. NULL is ETCLI_RUNNER_OK. From a callback of the
 * same runner it is ETCLI_RUNNER_BUSY and does nothing. No other call may begin in the meantime, etcli_runner_stop included. */
etcli_runner_status etcli_runner_free(etcli_runner* runner);

typedef struct etcli_runner_info {
  size_t size;
  int32_t vocabulary; /* ids are below it */
  int32_t context;    /* tokens that the caches hold */
  int32_t room;       /* how many of them are free, for prompt and answer */
  int32_t threads;
} etcli_runner_info;
#define ETCLI_RUNNER_INFO_INIT {sizeof(etcli_runner_info), 0, 0, 0, 0}

etcli_runner_status etcli_runner_get_info(etcli_runner* runner, etcli_runner_info* info);

/* Forgets the conversation, which is then as after loading. */
etcli_runner_status etcli_runner_reset(etcli_runner* runner);

/* Runs `count` ids: the first prompt, or what follows in the conversation. Everything decoded so far, a stop id included, is part of the
 * conversation already and is not to be given again.
 * ETCLI_RUNNER_USAGE forgets nothing. After ETCLI_RUNNER_STOPPED and any other failure the conversation is forgotten. */
etcli_runner_status etcli_runner_prefill(etcli_runner* runner, const int32_t* ids, size_t count);

typedef struct etcli_runner_decode_options {
  size_t size;
  int32_t max_new_tokens;  /* at least 1; a stop id counts */
  int32_t ignore_stop_ids; /* not 0: go on behind stop ids */
  /* Since version 2: as `etcli run --temperature --top-p --seed` (docs/runner-protocol.md, Sampling). */
  double temperature; /* 0 to 1000. 0 takes the likeliest token, and the other two say nothing then; above it tokens are drawn */
  double top_p;       /* 0 to 1: draw among the fewest likeliest tokens that have so much of the probability together */
  uint64_t seed;      /* the same seed, options and calls since the conversation began give the same tokens */
} etcli_runner_decode_options;
#define ETCLI_RUNNER_DECODE_OPTIONS_INIT {sizeof(etcli_runner_decode_options), 64, 0, 0.0, 1.0, 0}

typedef enum etcli_runner_reason {
  ETCLI_RUNNER_NO_REASON = 0,      /* the call failed */
  ETCLI_RUNNER_STOP_ID = 1,        /* the last token is one of the model's stop ids */
  ETCLI_RUNNER_MAX_NEW_TOKENS = 2, /* the next call goes on behind the last token */
  ETCLI_RUNNER_CACHE_FULL = 3,     /* no position is left */
  ETCLI_RUNNER_WAS_STOPPED = 4     /* by etcli_runner_stop or the callback; the next call goes on behind the last token */
} etcli_runner_reason;

/* One token as it is known, on the thread that called etcli_runner_decode. `index` counts from 0 since the last prompt. Not 0 ends the
 * call. It must neither throw nor jump out. */
typedef int32_t (*etcli_runner_on_token)(void* user, int32_t id, int64_t index);

/* Decodes: gives each new token to `on_token` (NULL: to nobody), and why it ended to `*reason` (may be NULL). Each call has options of its
 * own, for the first token behind a prompt too. Drawn tokens are counted through the conversation, so that an answer in parts is the whole one.
 * ETCLI_RUNNER_USAGE forgets nothing. After any other failure the conversation is forgotten. `options` may be NULL. */
etcli_runner_status etcli_runner_decode(etcli_runner* runner, const etcli_runner_decode_options* options, etcli_runner_on_token on_token,
                                        void* user, etcli_runner_reason* reason);

/* Ends the running etcli_runner_prefill or etcli_runner_decode before its next call of the model; where none runs, the next decode, unless a
 * prompt begins first. */
void etcli_runner_stop(etcli_runner* runner);

typedef struct etcli_runner_stats {
  size_t size;
  int64_t prompt_tokens; /* of the last prompt, and what came of it */
  int64_t new_tokens;
  int64_t decode_steps; /* calls of one token: N tokens after a prompt take N - 1 */
  double load_s;
  double prefill_s; /* of the prompt's calls: the first new token is chosen behind them */
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
