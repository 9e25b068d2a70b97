/* The program ends while other threads are inside calls: c_exit_test MODEL exits with 0, many times. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "linnet/c_api.h"

static const char* folder;

static linnet_session* saved;

/* Prompts of many rows, and steps, without end. */
static void* compute(void* unused) {
  linnet_model* model = NULL;
  linnet_session* session = NULL;
  linnet_session_options options;
  int32_t prompt[128] = {0}, tokens[2];
  linnet_session_options_init(&options, sizeof options);
  options.threads = 1;
  if (linnet_model_load(folder, &model) || linnet_session_create(model, 2, &options, &session)) {
    fprintf(stderr, "%s\n", linnet_error());
    _exit(2);
  }
  for (;;)
    if (linnet_begin(session, 0, 0, NULL) || linnet_prefill(session, 0, prompt, 128) ||
        linnet_begin(session, 1, 0, NULL) || linnet_step(session, tokens, NULL, 2))
      _exit(3);
  return unused;
}

/* Runs behind the destructors of what was made later. */
static void at_exit(void) {
  linnet_model* model = NULL;
  linnet_session* session = NULL;
  size_t size = 0;
  int32_t token;
  if (linnet_model_load(folder, &model) || linnet_session_create(model, 1, NULL, &session) ||
      linnet_step(session, &token, NULL, 1))
    _exit(7);
  linnet_session_free(session);
  linnet_model_free(model);
  if (linnet_step(saved, &token, NULL, 1) || linnet_save(saved, 0, NULL, 0, &size) || size == 0) _exit(4);
  linnet_session_free(saved);
}

static void child(int round) {
  pthread_t thread;
  linnet_model* model = NULL;
  const struct timespec a_while = {0, 20000000L + 700000L * round};
  int i;
  atexit(at_exit);
  if (linnet_model_load(folder, &model) || linnet_session_create(model, 1, NULL, &saved)) _exit(5);
  linnet_model_free(model);
  for (i = 0; i < 2; ++i)
    if (pthread_create(&thread, NULL, compute, NULL)) _exit(6);
  nanosleep(&a_while, NULL);
  exit(0);
}

int main(int argc, char** argv) {
  int round;
  if (argc != 2) return 1;
  folder = argv[1];
  for (round = 0; round < 40; ++round) {
    int status = 0;
    const pid_t id = fork();
    if (id == 0) child(round);
    if (id < 0 || waitpid(id, &status, 0) != id) return 1;
    if (status != 0) {
      fprintf(stderr, "round %d: expected status 0, got %d\n", round, status);
      return 1;
    }
  }
  return 0;
}
