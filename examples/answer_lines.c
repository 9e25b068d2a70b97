/* Writes an answer to each line of its input, with a model of pairs: another form of a date, a pronunciation.
 *   linnet train pairs --data pairs.tsv --out runs/pairs
 *   echo "17 March 2024" | answer_lines runs/pairs
 * Answers that end are those of `linnet generate runs/pairs --source-file … --temperature 0`; others have
 * most_answer tokens. An empty line has an empty answer, and lines have at most most_source bytes. */
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

static int fail(const char* sentence) {
  fprintf(stderr, "answer_lines: %s\n", sentence);
  return 1;
}

/* The bytes of the next line, without its end; -1 behind the last one. Of a line that is too long
 * most_source + 1. */
static long read_line(char* line) {
  long bytes = 0;
  int byte;
  while ((byte = getchar()) != EOF && byte != '\n')
    if (bytes <= most_source) line[bytes++] = (char)byte;
  if (byte == EOF && bytes == 0) return -1;
  return bytes > 0 && line[bytes - 1] == '\r' ? bytes - 1 : bytes;
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: answer_lines MODEL < LINES\n");
    return 2;
  }
  linnet_model* model;
  check(linnet_model_load(arguments[1], &model));
  const int32_t end = linnet_model_end(model);
  if (end < 0) return fail("expected a model of pairs, got another one");
  const int has_encoder = linnet_model_source_vocabulary(model) > 0;
  linnet_session* session;
  check(linnet_session_create(model, 1, NULL, &session));
  linnet_sampling greedy;
  check(linnet_sampling_init(&greedy, sizeof greedy));
  greedy.temperature = 0;

  static char line[most_source + 1], text[most_answer];
  static int32_t source[most_source + 1], answer[most_answer];
  for (long bytes; (bytes = read_line(line)) >= 0;) {
    if (bytes > most_source) return fail("expected lines of at most 4096 bytes, got a longer one");
    size_t tokens, drawn = 0, written = 0;
    if (bytes > 0) {
      check(linnet_model_encode(model, line, (size_t)bytes, source, most_source, &tokens));
      if (has_encoder) {
        check(linnet_begin_with_source(session, 0, source, tokens, &greedy));
      } else {
        check(linnet_begin(session, 0, -1, &greedy));
        source[tokens] = linnet_model_separator(model);
        check(linnet_prefill(session, 0, source, tokens + 1));
      }
      for (int32_t can; drawn < most_answer; ++drawn) {
        check(linnet_can_continue(session, 0, &can)); /* no: at the last of learned positions */
        if (!can) break;
        check(linnet_step(session, answer + drawn, NULL, 1));
        if (answer[drawn] == end) break;
      }
      check(linnet_model_decode(model, answer, drawn, text, most_answer, &written));
    }
    fwrite(text, 1, written, stdout);
    putchar('\n');
    fflush(stdout);
  }
  if (ferror(stdin)) return fail("cannot read standard input");
  if (fflush(stdout) != 0 || ferror(stdout)) return fail("cannot write standard output");
  linnet_session_free(session);
  linnet_model_free(model);
  return 0;
}
