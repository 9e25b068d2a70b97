/* Reads rows of numbers, and says which ones a forecaster did not expect: a stream in C.
 *   linnet train anomalies --data sensors.csv --out runs/sensors
 *   tail -n +2 -f sensors.csv | watch_series runs/sensors 6
 * A row is a line of numbers separated by commas, in the order of the training data's columns, without a
 * time. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "linnet/c_api.h"

static void check(linnet_status status) {
  if (status == LINNET_OK) return;
  fprintf(stderr, "watch_series: %s\n", linnet_error());
  exit(1);
}

/* The numbers of a line; an empty cell, or one that begins with no number, is missing, and one beyond all
 * floats is the largest of them. Returns how many there are, or -1 for a number with something else behind
 * it. */
static int64_t read_row(const char* line, float* row, int64_t columns) {
  for (int64_t i = 0; i < columns; ++i) {
    char* end;
    row[i] = strtof(line, &end);
    if (end == line) row[i] = NAN;
    if (isinf(row[i])) row[i] = copysignf(FLT_MAX, row[i]);
    const size_t rest = strcspn(end, ",");
    if (end != line && strspn(end, " \t\r\n") < rest) return -1;
    end += rest;
    if (*end == '\0') return i + 1;
    line = end + 1;
  }
  return columns + 1;
}

int main(int count, char** arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: watch_series MODEL SCALES < ROWS\n");
    return 2;
  }
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  char* end;
  const float most = strtof(arguments[2], &end);
  if (end == arguments[2] || *end != '\0' || !(most > 0)) {
    fprintf(stderr, "watch_series: expected SCALES above 0, got %s\n", arguments[2]);
    return 2;
  }
  linnet_model* model;
  check(linnet_model_load(arguments[1], &model));
  const int64_t columns = linnet_model_columns(model), targets = linnet_model_targets(model);
  linnet_session_options options;
  check(linnet_session_options_init(&options, sizeof options));
  options.threads = 1;
  linnet_number_session* session;
  check(linnet_number_session_create(model, 1, &options, &session));
  linnet_model_free(model); /* the session keeps what it needs */
  if (columns != targets) {
    fprintf(stderr, "watch_series: expected a model that predicts its %lld columns, got %lld numbers\n",
            (long long)columns, (long long)targets);
    return 1;
  }

  float* numbers = malloc((size_t)columns * 5 * sizeof *numbers);
  if (numbers == NULL) return 1;
  float *row = numbers, *mean = row + columns, *scale = mean + columns, *freedom = scale + columns,
        *next = freedom + columns;
  char line[1 << 16];
  long long rows = 0, known = 0, unexpected = 0;
  while (fgets(line, sizeof line, stdin) != NULL) {
    ++rows;
    if (strchr(line, '\n') == NULL && !feof(stdin)) {
      fprintf(stderr, "watch_series: expected rows of less than %zu bytes, got a longer row %lld\n",
              sizeof line, rows);
      return 1;
    }
    if (read_row(line, row, columns) != columns) {
      fprintf(stderr, "watch_series: expected a row of %lld numbers, got row %lld: \"%.*s\"\n",
              (long long)columns, rows, (int)strcspn(line, "\r\n"), line);
      return 1;
    }
    check(linnet_number_densities(session, 0, mean, scale, freedom, (size_t)columns));
    for (int64_t i = 0; i < columns; ++i) {
      if (isnan(row[i])) continue;
      ++known;
      const float apart = fabsf(row[i] - mean[i]) / scale[i];
      if (!(apart > most)) continue;
      ++unexpected;
      printf("row %lld, column %lld: %g is %.1f scales from %g\n", rows, (long long)i + 1, row[i], apart,
             mean[i]);
    }
    const linnet_status status = linnet_number_step(session, row, next, NULL, 1);
    int32_t can = 1;
    check(linnet_number_can_continue(session, 0, &can));
    if (status == LINNET_OK || can) {
      check(status);
    } else { /* so large that the model's own numbers overflow */
      fprintf(stderr, "watch_series: the stream begins anew behind row %lld: %s\n", rows, linnet_error());
      check(linnet_number_begin(session, 0, -1));
    }
  }
  printf("%lld of %lld numbers were unexpected\n", unexpected, known);
  if (ferror(stdin) || fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "watch_series: cannot read standard input or write standard output\n");
    return 1;
  }
  free(numbers);
  linnet_number_session_free(session);
  return 0;
}
