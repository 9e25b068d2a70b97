#ifndef LINNET_C_API_H_
#define LINNET_C_API_H_

/* Generation from C and from any language that calls C. Handles are opaque. Every function that can fail
 * returns a status, and no exception leaves a function. A model may be shared by sessions on any threads. A
 * session is used by one thread at a time. The C++ interface, linnet/generation.h, has more details. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  LINNET_OK = 0,
  LINNET_FAILED = 1, /* an invalid file, token or snapshot; linnet_error says which */
  LINNET_USAGE = 2,  /* an invalid argument */
  LINNET_OUT_OF_MEMORY = 3
} linnet_status;

typedef struct linnet_model linnet_model;
typedef struct linnet_session linnet_session;

/* How the next token is chosen; linnet_sampling_default() does not change the distribution. */
typedef struct {
  double temperature; /* 0: the most probable token */
  int64_t top_k;      /* only the k most probable tokens */
  double top_p;       /* only the smallest set of tokens with total probability top_p */
  uint64_t seed;
} linnet_sampling;

/* The error of the last call on this thread that failed: one sentence, "[operation] expected …, got …", valid
 * until the next call on this thread. Empty if no call has failed. */
const char* linnet_error(void);

linnet_sampling linnet_sampling_default(void);

/* Loads the folder of a model. The caller frees *model once; sessions keep what they need of it. */
linnet_status linnet_model_load(const char* folder, linnet_model** model);
void linnet_model_free(linnet_model* model);
int64_t linnet_model_vocabulary(const linnet_model* model);
int64_t linnet_model_classes(const linnet_model* model); /* 0 for models without labels */

/* Options of a session; NULL means linnet_session_options_default(). */
typedef struct {
  int64_t capacity; /* tokens per stream to reserve memory for, in families whose memory grows */
  int32_t cache;    /* 0: compute every token from the whole sequence again */
  int32_t threads;  /* 1: run every step on the calling thread, for callers with a deadline; 0: all */
} linnet_session_options;

linnet_session_options linnet_session_options_default(void);

/* `streams` streams, all at their beginning, with label 0 if the model has classes, and seeds 0, 1, …
 * `options` may be NULL. */
linnet_status linnet_session_create(const linnet_model* model, int64_t streams,
                                    const linnet_session_options* options, linnet_session** session);
void linnet_session_free(linnet_session* session);

/* Starts the stream anew. `label` is the class to draw, −1 for a model without classes; `sampling`
 * may be NULL for the default. */
linnet_status linnet_begin(linnet_session* session, int64_t stream, int64_t label,
                           const linnet_sampling* sampling);

/* Appends given tokens to a stream, in the parallel form. The stream is unchanged if the call fails. */
linnet_status linnet_prefill(linnet_session* session, int64_t stream, const int32_t* tokens, size_t count);

/* Draws the next token of each of `count` streams, each at most once, and appends it: tokens[i] belongs to
 * streams[i]. NULL for `streams` means all `count` streams of the session. */
linnet_status linnet_step(linnet_session* session, int32_t* tokens, const int64_t* streams, size_t count);

/* Makes `stream` continue exactly as `source` would, with a seed of its own. */
linnet_status linnet_fork(linnet_session* session, int64_t stream, int64_t source, uint64_t seed);

/* Tokens given and drawn so far. */
linnet_status linnet_position(const linnet_session* session, int64_t stream, int64_t* position);

/* The stream as bytes. *size receives their number. They are written to `bytes` if `capacity` is large
 * enough. `bytes` may be NULL with capacity 0 to ask for the size. A capacity above 0 that is too small is an
 * error. */
linnet_status linnet_save(const linnet_session* session, int64_t stream, void* bytes, size_t capacity,
                          size_t* size);
linnet_status linnet_restore(linnet_session* session, int64_t stream, const void* bytes, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* LINNET_C_API_H_ */
