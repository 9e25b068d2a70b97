/* Writes an answer to each line of its input, with a model of pairs: another form of a date, a pronunciation.
 *   linnet train pairs --data pairs.tsv --out runs/pairs
 *   echo "17 March 2024" | answer_lines runs/pairs
 * The same greedy answers come from `linnet generate runs/pairs --source-file … --temperature 0`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linnet/c_api.h"

enum { most_source = 4096, most_answer = 4096 };

static void check(linnet_status status) {
  if (status == LINNET_OK) return;
  fprintf(stderr, "answer_lines: %s\n", linnet_error());
  exit(1);
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: answer_lines MODEL < LINES\n");
    return 2;
  }
  linnet_model* model;
  check(linnet_model_load(arguments[1], &model));
  const int32_t end = linnet_model_end(model);
  if (end < 0) {
    fprintf(stderr, "answer_lines: expected a model of pairs, got another one\n");
    return 1;
  }
  const int has_encoder = linnet_model_source_vocabulary(model) > 0;
  linnet_session* session;
  check(linnet_session_create(model, 1, NULL, &session));
  linnet_sampling greedy;
  check(linnet_sampling_init(&greedy, sizeof greedy));
  greedy.temperature = 0;

  static char line[most_source + 2], text[most_answer];
  static int32_t source[most_source + 1], answer[most_answer];
  while (fgets(line, sizeof line, stdin) != NULL) {
    const size_t bytes = strcspn(line, "\r\n");
    if (bytes > most_source) {
      fprintf(stderr, "answer_lines: expected lines of at most %d bytes, got a longer one\n", most_source);
      return 1;
    }
    size_t tokens, drawn = 0, written;
    check(linnet_model_encode(model, line, bytes, source, most_source, &tokens));
    if (has_encoder) {
      check(linnet_begin_with_source(session, 0, source, tokens, &greedy));
    } else {
      check(linnet_begin(session, 0, -1, &greedy));
      source[tokens] = linnet_model_separator(model);
      check(linnet_prefill(session, 0, source, tokens + 1));
    }
    for (int32_t can = 1; drawn < most_answer; ++drawn) {
      check(linnet_can_continue(session, 0, &can)); /* no: at the last of learned positions */
      if (!can) break;
      check(linnet_step(session, answer + drawn, NULL, 1));
      if (answer[drawn] == end) break;
    }
    check(linnet_model_decode(model, answer, drawn, text, most_answer, &written));
    printf("%.*s\n", (int)written, text);
    fflush(stdout);
  }
  linnet_session_free(session);
  linnet_model_free(model);
  return 0;
}
