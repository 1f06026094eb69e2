/* An app in C: does what its arguments say with one runner, and prints a line for each.
 *
 *   client CONFIG THREADS STEP...
 *
 * Compiled with the interface's header of today, or with that of an earlier version, which has fewer steps.
 *
 * Steps: prefill:1,2,3   decode:N   decode-all:N (behind stop ids)   enough:N:K (the callback ends it after K tokens)
 *        drawn:N:T:P:SEED (behind stop ids, with temperature and top_p; from version 2 on)
 *        stopped:N:K (another thread does, after K tokens)   inside:N (calls into the same runner from the callback)
 *        second:T:CONFIG (another runner, with T threads)   reset   stop   info   stats   none (calls without a runner and with structs that are not set)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "etcli_runner.h"

static etcli_runner* runner;

static void said(const char* what, etcli_runner_status status) {
  printf("%s %d %s\n", what, (int)status, status == ETCLI_RUNNER_OK ? "" : etcli_runner_last_code());
  if (status != ETCLI_RUNNER_OK) fprintf(stderr, "%s\n", etcli_runner_last_error());
}

typedef struct {
  long tokens;
  long enough;     /* the callback ends it after so many */
  long stop_after; /* another thread does */
  int inside;
} listening;

static void* stop_it(void* unused) {
  (void)unused;
  etcli_runner_stop(runner);
  return NULL;
}

static int32_t on_token(void* user, int32_t id, int64_t index) {
  listening* state = (listening*)user;
  printf("token %ld %ld\n", (long)index, (long)id);
  ++state->tokens;
  if (state->inside) {
    etcli_runner_info info = ETCLI_RUNNER_INFO_INIT;
    said("inside-info", etcli_runner_get_info(runner, &info));
    said("inside-free", etcli_runner_free(runner));
    said("inside-reset", etcli_runner_reset(runner));
  }
  if (state->tokens == state->stop_after) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, stop_it, NULL) == 0) pthread_join(thread, NULL);
  }
  return state->tokens == state->enough;
}

static void decode_by(const etcli_runner_decode_options* options, listening state) {
  etcli_runner_reason reason = ETCLI_RUNNER_NO_REASON;
  said("decode", etcli_runner_decode(runner, options, on_token, &state, &reason));
  printf("reason %d\n", (int)reason);
}

static void decode(int32_t count, int32_t all, listening state) {
  etcli_runner_decode_options options = ETCLI_RUNNER_DECODE_OPTIONS_INIT;
  options.max_new_tokens = count;
  options.ignore_stop_ids = all;
  decode_by(&options, state);
}

#if ETCLI_RUNNER_API >= 2
static void draw(const char* words, listening state) {
  etcli_runner_decode_options options = ETCLI_RUNNER_DECODE_OPTIONS_INIT;
  char* end;
  options.max_new_tokens = (int32_t)strtol(words, &end, 10);
  options.ignore_stop_ids = 1;
  options.temperature = strtod(end + 1, &end);
  options.top_p = strtod(end + 1, &end);
  options.seed = strtoull(end + 1, &end, 10);
  decode_by(&options, state);
}
#endif

static size_t parse(const char* words, int32_t* ids, size_t most) {
  size_t count = 0;
  while (*words && count < most) {
    char* end;
    ids[count++] = (int32_t)strtol(words, &end, 10);
    words = *end ? end + 1 : end;
  }
  return count;
}

static void without(void) {
  etcli_runner* other = (etcli_runner*)1;
  etcli_runner_info unset;
  etcli_runner_load_options options = ETCLI_RUNNER_LOAD_OPTIONS_INIT;
  memset(&unset, 0, sizeof unset);
  said("none-load", etcli_runner_load(NULL, NULL, &other));
  printf("%s\n", other == NULL ? "no runner" : "a runner");
  said("none-place", etcli_runner_load("x", NULL, NULL));
  options.threads = -1;
  said("none-threads", etcli_runner_load("x", &options, &other));
  said("none-prefill", etcli_runner_prefill(NULL, NULL, 0));
  said("none-decode", etcli_runner_decode(NULL, NULL, NULL, NULL, NULL));
  said("none-free", etcli_runner_free(NULL));
  etcli_runner_stop(NULL);
  said("none-ids", etcli_runner_prefill(runner, NULL, 3));
  said("none-size", etcli_runner_get_info(runner, &unset));
  said("none-info", etcli_runner_get_info(runner, NULL));
}

static void step(const char* words) {
  static int32_t ids[4096];
  const listening plain = {0, 0, 0, 0};
  listening state = plain;
  const char* first = strchr(words, ':');
  const char* second = first ? strchr(first + 1, ':') : NULL;
  const int32_t count = first ? (int32_t)atoi(first + 1) : 0;
  if (!strncmp(words, "prefill", 7)) {
    said("prefill", etcli_runner_prefill(runner, ids, parse(first + 1, ids, 4096)));
#if ETCLI_RUNNER_API >= 2
  } else if (!strncmp(words, "drawn", 5)) {
    draw(first + 1, state);
#endif
  } else if (!strncmp(words, "decode-all", 10)) {
    decode(count, 1, state);
  } else if (!strncmp(words, "decode", 6)) {
    decode(count, 0, state);
  } else if (!strncmp(words, "enough", 6)) {
    state.enough = atol(second + 1);
    decode(count, 0, state);
  } else if (!strncmp(words, "stopped", 7)) {
    state.stop_after = atol(second + 1);
    decode(count, 0, state);
  } else if (!strncmp(words, "inside", 6)) {
    state.inside = 1;
    decode(count, 0, state);
  } else if (!strcmp(words, "reset")) {
    said("reset", etcli_runner_reset(runner));
  } else if (!strcmp(words, "stop")) {
    etcli_runner_stop(runner);
  } else if (!strcmp(words, "info")) {
    etcli_runner_info info = ETCLI_RUNNER_INFO_INIT;
    said("info", etcli_runner_get_info(runner, &info));
    printf("vocabulary %d context %d room %d threads %d\n", (int)info.vocabulary, (int)info.context, (int)info.room, (int)info.threads);
  } else if (!strcmp(words, "stats")) {
    etcli_runner_stats stats = ETCLI_RUNNER_STATS_INIT;
    said("stats", etcli_runner_get_stats(runner, &stats));
    printf("prompt %ld new %ld steps %ld times %d\n", (long)stats.prompt_tokens, (long)stats.new_tokens, (long)stats.decode_steps,
           stats.load_s > 0 && stats.prefill_s > 0 && stats.decode_s >= 0);
  } else if (!strcmp(words, "none")) {
    without();
  } else if (!strncmp(words, "second", 6)) { /* a second runner of the same process, with so many threads */
    etcli_runner* other = NULL;
    etcli_runner_load_options options = ETCLI_RUNNER_LOAD_OPTIONS_INIT;
    options.threads = count;
    said("second", etcli_runner_load(second + 1, &options, &other));
    said("second-free", etcli_runner_free(other));
  } else {
    printf("no step %s\n", words);
    exit(9);
  }
}

int main(int argc, char** argv) {
  etcli_runner_load_options options = ETCLI_RUNNER_LOAD_OPTIONS_INIT;
  int i;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc < 3) return 9;
  printf("api %d of %d, %s\n", (int)etcli_runner_api(), ETCLI_RUNNER_API, etcli_runner_version());
  options.threads = (int32_t)atoi(argv[2]);
  said("load", etcli_runner_load(argv[1], &options, &runner));
  if (runner == NULL) return 1;
  for (i = 3; i < argc; ++i) step(argv[i]);
  said("free", etcli_runner_free(runner));
  return 0;
}
