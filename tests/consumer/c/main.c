/* A C99 program outside of Linnet: consumer MODEL. */
#include <stdio.h>
#include <string.h>

#include "linnet/c_api.h"
#include "linnet/version.h"

static int failed(const char* what) {
  fprintf(stderr, "expected %s; last error: %s\n", what, linnet_error());
  return 1;
}

int main(int count, char** arguments) {
  char version[32];
  linnet_model* model = NULL;
  linnet_session* session = NULL;
  linnet_sampling sampling;
  int32_t token = -1;
  if (count != 2) return 2;
  sprintf(version, "%d.%d.%d", LINNET_VERSION_MAJOR, LINNET_VERSION_MINOR, LINNET_VERSION_PATCH);
  if (strcmp(version, linnet_version()) != 0) return failed("the version of the headers");
  if (linnet_model_load(arguments[1], &model) != LINNET_OK) return failed("a model");
  if (linnet_session_create(model, 1, NULL, &session) != LINNET_OK) return failed("a session");
  if (linnet_sampling_init(&sampling, sizeof sampling) != LINNET_OK) return failed("defaults");
  sampling.temperature = 0.5;
  if (linnet_begin(session, 0, 3, &sampling) != LINNET_OK) return failed("a stream");
  if (linnet_step(session, &token, NULL, 1) != LINNET_OK || token < 0) return failed("a token");
  if (linnet_step(session, NULL, NULL, 1) != LINNET_USAGE) return failed("NULL to be refused");
  linnet_session_free(session);
  linnet_model_free(model);
  return 0;
}
