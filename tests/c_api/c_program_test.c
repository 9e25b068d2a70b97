/* The C interface, from a C program: c_program_test MODEL. */

#define _XOPEN_SOURCE 700

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "linnet/c_api.h"
#include "linnet/version.h"

static int failures = 0;

static void expect(int holds, const char* what, int line) {
  if (holds) return;
  fprintf(stderr, "line %d: expected %s; last error: %s\n", line, what, linnet_error());
  ++failures;
}
#define EXPECT(condition) expect(condition, #condition, __LINE__)
#define EXPECT_REFUSED(call, status, sentence)        \
  do {                                                \
    EXPECT((call) == (status));                       \
    EXPECT(strstr(linnet_error(), sentence) != NULL); \
  } while (0)

enum { kTokens = 40 };

static void continues_bit_for_bit(const linnet_model* model) {
  linnet_session *session = NULL, *other = NULL;
  EXPECT(linnet_session_create(model, 3, NULL, &session) == LINNET_OK);
  linnet_session_options options;
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  options.threads = 1;
  EXPECT(linnet_session_create(model, 1, &options, &other) == LINNET_OK);
  linnet_sampling sampling;
  EXPECT(linnet_sampling_init(&sampling, sizeof sampling) == LINNET_OK);
  sampling.temperature = 0.8;
  sampling.seed = 5;
  EXPECT(linnet_begin(session, 1, 7, &sampling) == LINNET_OK);
  const int32_t prompt[] = {0, 0, 1, 2, 1, 0};
  EXPECT(linnet_prefill(session, 1, prompt, 6) == LINNET_OK);

  int32_t all[3];
  EXPECT(linnet_step(session, all, NULL, 3) == LINNET_OK);
  int64_t position = 0;
  EXPECT(linnet_position(session, 1, &position) == LINNET_OK);
  EXPECT(position == 7);

  size_t size = 0;
  EXPECT(linnet_save(session, 1, NULL, 0, &size) == LINNET_OK);
  EXPECT(size > 88);
  void* bytes = malloc(size);
  EXPECT_REFUSED(linnet_save(session, 1, bytes, size - 1, &size), LINNET_USAGE, "expected memory for");
  EXPECT(linnet_save(session, 1, bytes, size, &size) == LINNET_OK);
  EXPECT(linnet_restore(other, 0, bytes, size) == LINNET_OK);
  EXPECT(linnet_fork(session, 2, 1, 5) == LINNET_OK);
  for (int i = 0; i < kTokens; ++i) {
    int32_t here[2], there;
    const int64_t streams[] = {1, 2};
    EXPECT(linnet_step(session, here, streams, 2) == LINNET_OK);
    EXPECT(linnet_step(other, &there, NULL, 1) == LINNET_OK);
    EXPECT(here[0] == there && here[1] == there);
    EXPECT(0 <= there && there < linnet_model_vocabulary(model));
  }
  ((char*)bytes)[90] ^= 1;
  EXPECT_REFUSED(linnet_restore(other, 0, bytes, size), LINNET_FAILED, "damaged");
  free(bytes);
  linnet_session_free(other);
  linnet_session_free(session);
}

static void streams_observe_and_tell_what_comes_next(const linnet_model* model) {
  const size_t vocabulary = (size_t)linnet_model_vocabulary(model);
  float* logits = malloc(kTokens * vocabulary * sizeof *logits);
  float* next = malloc(vocabulary * sizeof *next);
  int32_t inputs[kTokens], tokens[kTokens];
  float scores[kTokens];
  linnet_session* session = NULL;
  EXPECT(linnet_session_create(model, 1, NULL, &session) == LINNET_OK);
  EXPECT(linnet_begin(session, 0, 7, NULL) == LINNET_OK);
  for (int i = 0; i < kTokens; ++i) tokens[i] = i % (int)vocabulary;
  EXPECT(linnet_model_first_input(model, 7, inputs) == LINNET_OK);
  memcpy(inputs + 1, tokens, (kTokens - 1) * sizeof *inputs);
  const int64_t whole = kTokens;
  EXPECT(linnet_model_forward(model, 2, inputs, 1, kTokens, &whole, logits, kTokens * vocabulary) ==
         LINNET_OK);
  EXPECT(linnet_model_score(model, 2, tokens, kTokens, 7, scores) == LINNET_OK);
  for (int i = 0; i < kTokens; ++i) {
    EXPECT(linnet_logits(session, 0, next, vocabulary) == LINNET_OK);
    for (size_t j = 0; j < vocabulary; ++j)
      EXPECT(fabsf(next[j] - logits[(size_t)i * vocabulary + j]) < 1e-3f * (1 + fabsf(next[j])));
    EXPECT(linnet_probabilities(session, 0, next, vocabulary) == LINNET_OK);
    EXPECT(fabsf(logf(next[tokens[i]]) - scores[i]) < 1e-3f * (1 + fabsf(scores[i])));
    EXPECT(linnet_observe(session, tokens + i, NULL, 1) == LINNET_OK);
  }
  int64_t position = 0;
  EXPECT(linnet_session_resize(session, 3) == LINNET_OK);
  EXPECT(linnet_position(session, 0, &position) == LINNET_OK && position == kTokens);
  EXPECT(linnet_position(session, 2, &position) == LINNET_OK && position == 0);

  const int64_t streams[] = {2, 0};
  EXPECT(linnet_observe(session, tokens, streams, 2) == LINNET_OK);
  EXPECT(linnet_position(session, 0, &position) == LINNET_OK && position == kTokens + 1);
  EXPECT_REFUSED(linnet_observe(session, tokens, streams, 4), LINNET_USAGE, "[observe] expected at most");
  EXPECT_REFUSED(linnet_observe(session, tokens, NULL, 2), LINNET_USAGE, "[observe] expected as many");
  EXPECT_REFUSED(linnet_observe(session, NULL, NULL, 3), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_observe(NULL, tokens, NULL, 3), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_logits(session, 0, next, vocabulary - 1), LINNET_USAGE, "[logits] expected memory");
  EXPECT_REFUSED(linnet_logits(session, 3, next, vocabulary), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_logits(session, 0, NULL, vocabulary), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_logits(NULL, 0, next, vocabulary), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_probabilities(session, 0, NULL, vocabulary), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_probabilities(NULL, 0, next, vocabulary), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_session_resize(session, 0), LINNET_USAGE, "streams, got 0");
  EXPECT_REFUSED(linnet_session_resize(session, INT64_MAX), LINNET_USAGE, "streams, got");
  EXPECT_REFUSED(linnet_session_resize(NULL, 1), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_forward(model, 1, inputs, 1, 2, NULL, logits, vocabulary), LINNET_USAGE,
                 "[forward] expected memory");
  EXPECT_REFUSED(linnet_model_forward(model, 1, inputs, -1, 2, NULL, logits, vocabulary), LINNET_USAGE,
                 "expected");
  EXPECT_REFUSED(linnet_model_forward(model, -1, inputs, 1, 2, NULL, logits, 2 * vocabulary), LINNET_USAGE,
                 "threads");
  EXPECT_REFUSED(linnet_model_forward(model, 1, inputs, INT64_MAX, 2, NULL, logits, 2), LINNET_USAGE, "");
  EXPECT_REFUSED(linnet_model_forward(model, 1, NULL, 1, 2, NULL, logits, 2 * vocabulary), LINNET_USAGE,
                 "got NULL");
  EXPECT_REFUSED(linnet_model_forward(model, 1, inputs, 1, 2, NULL, NULL, 2 * vocabulary), LINNET_USAGE,
                 "got NULL");
  EXPECT_REFUSED(linnet_model_forward(NULL, 1, inputs, 1, 2, NULL, logits, 2 * vocabulary), LINNET_USAGE,
                 "got NULL");
  EXPECT_REFUSED(linnet_model_first_input(model, 1000, inputs), LINNET_USAGE, "label");
  EXPECT_REFUSED(linnet_model_first_input(model, 1, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_first_input(NULL, 1, inputs), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_score(model, 1, tokens, SIZE_MAX, 7, scores), LINNET_USAGE, "expected at most");
  EXPECT_REFUSED(linnet_model_score(model, 1, NULL, 3, 7, scores), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_score(model, 1, tokens, 3, 7, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_score(NULL, 1, tokens, 3, 7, scores), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_score(model, 1, tokens, 3, -1, scores), LINNET_USAGE, "label");
  linnet_session_free(session);
  free(next);
  free(logits);
}

/* Leaves one token possible, or fails for the stream *data. */
static int32_t only_three(void* data, int64_t stream, int64_t field, float* logits, size_t count) {
  if (field != 0) return 6;
  if (stream == *(const int64_t*)data) return 5;
  for (size_t i = 0; i < count; ++i)
    if (i != 3) logits[i] = -INFINITY;
  return 0;
}

static void steps_process_logits_and_tell_probabilities(const linnet_model* model) {
  linnet_session* session = NULL;
  EXPECT(linnet_session_create(model, 2, NULL, &session) == LINNET_OK);
  linnet_step_options options;
  EXPECT(linnet_step_options_init(&options, sizeof options) == LINNET_OK);
  EXPECT(options.process_logits == NULL && options.log_probabilities == NULL);
  int64_t failing = -1;
  float found[2];
  options.process_logits = only_three;
  options.data = &failing;
  options.log_probabilities = found;
  int32_t tokens[2] = {0, 0};
  EXPECT(linnet_step_with_options(session, tokens, NULL, 2, &options) == LINNET_OK);
  EXPECT(tokens[0] == 3 && tokens[1] == 3);
  float expected;
  EXPECT(linnet_model_score(model, 1, tokens, 1, 0, &expected) == LINNET_OK);
  for (int i = 0; i < 2; ++i) EXPECT(fabsf(found[i] - expected) < 1e-3f * (1 + fabsf(expected)));

  int32_t can = 0;
  EXPECT(linnet_can_continue(session, 1, &can) == LINNET_OK && can == 1);
  failing = 1;
  EXPECT_REFUSED(linnet_step_with_options(session, tokens, NULL, 2, &options), LINNET_FAILED,
                 "got 5 for stream 1");
  EXPECT(linnet_can_continue(session, 1, &can) == LINNET_OK && can == 0);
  EXPECT(linnet_can_continue(session, 0, &can) == LINNET_OK && can == 1);
  EXPECT(linnet_begin(session, 1, 0, NULL) == LINNET_OK);

  linnet_sampling sampling;
  EXPECT(linnet_sampling_init(&sampling, sizeof sampling) == LINNET_OK);
  sampling.temperature = 0;
  const int64_t first = 0;
  int64_t limit = 0;
  EXPECT(linnet_set_sampling(session, 1, &sampling) == LINNET_OK);
  const linnet_sampling kept = sampling;
  EXPECT(linnet_step_with_options(session, tokens, &first, 1, NULL) == LINNET_OK);
  EXPECT(linnet_limit(session, &limit) == LINNET_OK && limit > 0);
  sampling.top_k = 0;
  EXPECT_REFUSED(linnet_set_sampling(session, 1, &sampling), LINNET_USAGE, "top-k");
  linnet_sampling its;
  EXPECT(linnet_get_sampling(session, 1, &its, sizeof its) == LINNET_OK);
  EXPECT(its.size == sizeof its && its.seed == kept.seed && its.temperature == kept.temperature &&
         its.top_k == kept.top_k && its.top_p == kept.top_p);
  EXPECT_REFUSED(linnet_get_sampling(session, 2, &its, sizeof its), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_get_sampling(session, 1, NULL, sizeof its), LINNET_USAGE, "sampling");
  EXPECT_REFUSED(linnet_set_sampling(session, 2, NULL), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_limit(session, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_can_continue(session, 0, NULL), LINNET_USAGE, "got NULL");
  options.size = 8;
  EXPECT_REFUSED(linnet_step_with_options(session, tokens, NULL, 2, &options), LINNET_USAGE, "whose size is");
  linnet_session_free(session);
}

static void what_cannot_be_is_refused(const linnet_model* model) {
  linnet_model* none = NULL;
  EXPECT_REFUSED(linnet_model_load("/no/such/folder", &none), LINNET_FAILED, "[model] expected a folder");
  EXPECT(none == NULL);
  EXPECT_REFUSED(linnet_model_load(NULL, &none), LINNET_USAGE, "got NULL");
  size_t count = 0;
  EXPECT_REFUSED(linnet_model_encode(model, "text", 4, NULL, 0, &count), LINNET_USAGE, "one of pictures");
  EXPECT_REFUSED(linnet_model_decode(model, NULL, 0, NULL, 0, &count), LINNET_USAGE, "one of pictures");
  linnet_session* session = NULL;
  EXPECT_REFUSED(linnet_session_create(model, 0, NULL, &session), LINNET_USAGE, "streams, got 0");
  EXPECT(session == NULL);
  linnet_session_options options;
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  options.threads = -1;
  EXPECT_REFUSED(linnet_session_create(model, 1, &options, &session), LINNET_USAGE,
                 "threads, for one per processor, or 1");
  options.threads = 0;
  options.capacity = -1;
  EXPECT_REFUSED(linnet_session_create(model, 1, &options, &session), LINNET_USAGE, "capacity");
  EXPECT(session == NULL);
  EXPECT(linnet_session_create(model, 1, NULL, &session) == LINNET_OK);
  linnet_sampling sampling;
  EXPECT(linnet_sampling_init(&sampling, sizeof sampling) == LINNET_OK);
  sampling.temperature = NAN;
  EXPECT_REFUSED(linnet_begin(session, 0, 1, &sampling), LINNET_USAGE, "temperature");
  EXPECT_REFUSED(linnet_begin(session, 0, 1000, NULL), LINNET_USAGE, "label");
  EXPECT_REFUSED(linnet_begin(session, 1, 1, NULL), LINNET_USAGE, "expected a stream");
  const int32_t outside = 1 << 20;
  EXPECT_REFUSED(linnet_prefill(session, 0, &outside, 1), LINNET_USAGE, "expected tokens in");
  EXPECT_REFUSED(linnet_prefill(session, 0, NULL, 1), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_restore(session, 0, "no snapshot", 11), LINNET_FAILED, "[snapshot] expected");
  /* The session is as good as before. */
  int32_t token = -1;
  EXPECT(linnet_step(session, &token, NULL, 1) == LINNET_OK);
  EXPECT(token >= 0);
  linnet_session_free(session);
}

/* Every pointer of every function, in turn. */
static void null_is_refused(const linnet_model* model) {
  linnet_session* session = NULL;
  EXPECT(linnet_session_create(model, 2, NULL, &session) == LINNET_OK);
  int32_t tokens[2] = {0, 0};
  int64_t position = 0;
  size_t size = 0;
  char byte = 0;
  EXPECT_REFUSED(linnet_sampling_init(NULL, sizeof(linnet_sampling)), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_session_options_init(NULL, sizeof(linnet_session_options)), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_step_options_init(NULL, sizeof(linnet_step_options)), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_load("somewhere", NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_model_vocabulary(NULL), -1, "[vocabulary] expected a model, got NULL");
  EXPECT_REFUSED(linnet_model_classes(NULL), -1, "[classes] expected a model, got NULL");
  EXPECT_REFUSED(linnet_session_create(model, 1, NULL, NULL), LINNET_USAGE, "got NULL");
  linnet_session* none = session;
  EXPECT_REFUSED(linnet_session_create(NULL, 1, NULL, &none), LINNET_USAGE, "got NULL");
  EXPECT(none == NULL);
  EXPECT_REFUSED(linnet_begin(NULL, 0, 0, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_prefill(NULL, 0, tokens, 1), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_prefill(session, 0, NULL, 1), LINNET_USAGE, "got NULL");
  EXPECT(linnet_prefill(session, 0, NULL, 0) == LINNET_OK);
  EXPECT_REFUSED(linnet_step(NULL, tokens, NULL, 2), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_step(session, NULL, NULL, 2), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_fork(NULL, 0, 1, 0), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_position(NULL, 0, &position), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_position(session, 0, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_save(NULL, 0, NULL, 0, &size), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_save(session, 0, NULL, 0, NULL), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_save(session, 0, NULL, 100, &size), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_restore(NULL, 0, &byte, 1), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_restore(session, 0, NULL, 1), LINNET_USAGE, "got NULL");
  EXPECT_REFUSED(linnet_restore(session, 0, NULL, 0), LINNET_FAILED, "[snapshot] expected at least");
  EXPECT(linnet_step(session, tokens, NULL, 2) == LINNET_OK);
  linnet_session_free(session);
}

static void absurd_sizes_are_refused(const linnet_model* model) {
  const size_t absurd[] = {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 16, (size_t)1 << 40};
  linnet_session* session = NULL;
  EXPECT(linnet_session_create(model, 2, NULL, &session) == LINNET_OK);
  int32_t tokens[2] = {0, 0};
  const int64_t streams[] = {0, 1};
  size_t size = 0;
  EXPECT(linnet_save(session, 0, NULL, 0, &size) == LINNET_OK);
  char* bytes = malloc(size);
  EXPECT(linnet_save(session, 0, bytes, size, &size) == LINNET_OK);
  for (size_t i = 0; i < sizeof absurd / sizeof *absurd; ++i) {
    EXPECT(linnet_prefill(session, 0, tokens, absurd[i]) != LINNET_OK);
    EXPECT(linnet_step(session, tokens, NULL, absurd[i]) != LINNET_OK);
    EXPECT(linnet_step(session, tokens, streams, absurd[i]) == LINNET_USAGE);
    EXPECT(linnet_restore(session, 0, bytes, absurd[i]) != LINNET_OK);
    EXPECT(linnet_session_create(model, (int64_t)absurd[i], NULL, &(linnet_session*){NULL}) == LINNET_USAGE);
  }
  EXPECT_REFUSED(linnet_save(session, 0, bytes, SIZE_MAX, &size), LINNET_USAGE, "expected at most");
  EXPECT_REFUSED(linnet_begin(session, INT64_MIN, 0, NULL), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_begin(session, INT64_MAX, 0, NULL), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_fork(session, 0, INT64_MIN, 0), LINNET_USAGE, "expected a stream");
  EXPECT_REFUSED(linnet_begin(session, 0, INT64_MAX, NULL), LINNET_USAGE, "label");
  EXPECT(linnet_restore(session, 0, bytes, size) == LINNET_OK);
  free(bytes);
  EXPECT(linnet_step(session, tokens, NULL, 2) == LINNET_OK);
  linnet_session_free(session);
}

/* Callers that were compiled with older and with newer headers. */
static void options_may_grow(const linnet_model* model) {
  struct {
    linnet_sampling known;
    double newer;
  } grown;
  linnet_session* session = NULL;
  EXPECT(linnet_session_create(model, 1, NULL, &session) == LINNET_OK);

  grown.newer = 7;
  EXPECT(linnet_sampling_init(&grown.known, sizeof grown) == LINNET_OK);
  EXPECT(grown.known.size == sizeof grown && grown.known.temperature == 1 && grown.newer == 0);
  EXPECT(linnet_begin(session, 0, 1, &grown.known) == LINNET_OK);
  grown.newer = 1;
  EXPECT_REFUSED(linnet_begin(session, 0, 1, &grown.known), LINNET_USAGE, "from this version");
  /* What is behind the size is nobody's. */
  grown.known.size = sizeof grown.known;
  EXPECT(linnet_begin(session, 0, 1, &grown.known) == LINNET_OK);

  const size_t impossible[] = {0, 1, sizeof grown.known.size, 39, 4097, SIZE_MAX};
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; ++i) {
    grown.known.size = impossible[i];
    EXPECT_REFUSED(linnet_begin(session, 0, 1, &grown.known), LINNET_USAGE,
                   "[begin] expected options whose size");
    EXPECT_REFUSED(linnet_sampling_init(&grown.known, impossible[i]), LINNET_USAGE,
                   "expected options whose size");
  }
  linnet_session_options options;
  EXPECT_REFUSED(linnet_session_options_init(&options, 23), LINNET_USAGE, "expected options whose size");
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  EXPECT(options.size == sizeof options && options.cache == 1 && options.threads == 0 &&
         options.capacity == 0);
  options.size = 0;
  linnet_session* none = NULL;
  EXPECT_REFUSED(linnet_session_create(model, 1, &options, &none), LINNET_USAGE,
                 "expected options whose size");
  EXPECT(none == NULL);
  linnet_session_free(session);
}

/* Ends the child process; the parent gets whether all expectations held in it, within two minutes. */
static int child_succeeds(void (*body)(const linnet_model*), const linnet_model* model) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    alarm(120);
    failures = 0;
    body(model);
    _exit(failures);
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kCanLimitMemory = 0 }; /* sanitizers reserve terabytes */
#else
enum { kCanLimitMemory = 1 };
#endif

/* Stacks take megabytes of addresses each, of which there are few here. */
static void threads_beyond_memory(const linnet_model* model) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  EXPECT(file != NULL && fscanf(file, "%ld", &pages) == 1);
  if (file != NULL) fclose(file);
  const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)200 << 20);
  const struct rlimit limit = {most, most};
  EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
  linnet_session_options options;
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  options.threads = 1024;
  linnet_session* session = NULL;
  EXPECT_REFUSED(linnet_session_create(model, 1, &options, &session), LINNET_FAILED,
                 "[context] expected 1024 threads, got");
  EXPECT(session == NULL);
  options.threads = 2;
  EXPECT(linnet_session_create(model, 1, &options, &session) == LINNET_OK);
  int32_t token = -1;
  EXPECT(linnet_step(session, &token, NULL, 1) == LINNET_OK);
  linnet_session_free(session);
}

static void too_many_threads_are_refused(const linnet_model* model) {
  linnet_session_options options;
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  const int32_t impossible[] = {-1, 1025, 100000, INT32_MAX, INT32_MIN};
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; ++i) {
    linnet_session* session = NULL;
    options.threads = impossible[i];
    EXPECT_REFUSED(linnet_session_create(model, 1, &options, &session), LINNET_USAGE, "[context] expected");
    EXPECT(session == NULL);
    int32_t token = 0;
    float score = 0;
    EXPECT_REFUSED(linnet_model_score(model, impossible[i], &token, 1, 0, &score), LINNET_USAGE,
                   "[context] expected");
  }
  if (kCanLimitMemory) EXPECT(child_succeeds(threads_beyond_memory, model));
}

static linnet_session* parents_session = NULL;
static int32_t expected_tokens[kTokens];
static float expected_scores[kTokens];

static void scores_as_before(const linnet_model* model) {
  float scores[kTokens];
  EXPECT(linnet_model_score(model, 4, expected_tokens, kTokens, 0, scores) == LINNET_OK);
  EXPECT(memcmp(scores, expected_scores, sizeof scores) == 0);
}

static void continues_in_a_child(const linnet_model* model) {
  for (int i = 0; i < kTokens; ++i) {
    int32_t token = -1;
    EXPECT(linnet_step(parents_session, &token, NULL, 1) == LINNET_OK);
    EXPECT(token == expected_tokens[i]);
  }
  linnet_session_free(parents_session);
#ifndef __SANITIZE_THREAD__
  scores_as_before(model);
  linnet_session* own = NULL;
  EXPECT(linnet_session_create(model, 1, NULL, &own) == LINNET_OK);
  int32_t token = -1;
  EXPECT(linnet_step(own, &token, NULL, 1) == LINNET_OK);
  EXPECT(token == expected_tokens[0]);
  linnet_session_free(own);
#else
  (void)model;
#endif
}

static void children_may_use_sessions(const linnet_model* model) {
  linnet_session_options options;
  EXPECT(linnet_session_options_init(&options, sizeof options) == LINNET_OK);
  options.threads = 4;
  EXPECT(linnet_session_create(model, 1, &options, &parents_session) == LINNET_OK);
  linnet_session* twin = NULL;
  EXPECT(linnet_session_create(model, 1, &options, &twin) == LINNET_OK);
  for (int i = 0; i < kTokens; ++i) EXPECT(linnet_step(twin, &expected_tokens[i], NULL, 1) == LINNET_OK);
  /* Its threads are the parent's, and the child starts others. */
  EXPECT(linnet_model_score(model, 4, expected_tokens, kTokens, 0, expected_scores) == LINNET_OK);
  EXPECT(child_succeeds(continues_in_a_child, model));
  continues_in_a_child(model);
  linnet_session_free(twin);
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: %s MODEL\n", arguments[0]);
    return 2;
  }
  linnet_model* model = NULL;
  EXPECT(linnet_model_load(arguments[1], &model) == LINNET_OK);
  if (model == NULL) return 1;
  EXPECT(linnet_model_classes(model) == 10);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", LINNET_VERSION_MAJOR, LINNET_VERSION_MINOR,
           LINNET_VERSION_PATCH);
  EXPECT(strcmp(linnet_version(), version) == 0);
  continues_bit_for_bit(model);
  streams_observe_and_tell_what_comes_next(model);
  steps_process_logits_and_tell_probabilities(model);
  what_cannot_be_is_refused(model);
  null_is_refused(model);
  absurd_sizes_are_refused(model);
  options_may_grow(model);
  too_many_threads_are_refused(model);
  children_may_use_sessions(model);
  linnet_model_free(model);
  linnet_model_free(NULL);
  linnet_session_free(NULL);
  if (failures == 0) puts("all expectations hold");
  return failures == 0 ? 0 : 1;
}
