#ifndef LINNET_C_API_H_
#define LINNET_C_API_H_

/* Generation from C and from any language that calls C. Handles are opaque; every function that can fail
 * returns a status, and no exception crosses. A model may be shared by sessions on any threads; a session is
 * used by one thread at a time. Docstrings of the C++ interface, linnet/generation.h, say more. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  LINNET_OK = 0,
  LINNET_FAILED = 1, /* a file, a token, a snapshot that cannot be; linnet_error says which */
  LINNET_USAGE = 2,  /* an argument that can never be */
  LINNET_OUT_OF_MEMORY = 3
} linnet_status;

typedef struct linnet_model linnet_model;
typedef struct linnet_session linnet_session;

/* How the next token is chosen; linnet_sampling_default() leaves the distribution as it is. */
typedef struct {
  double temperature; /* 0 takes the most probable token */
  int64_t top_k;      /* only the k most probable tokens */
  double top_p;       /* only the fewest tokens whose probabilities add up to top_p */
  uint64_t seed;
} linnet_sampling;

/* What went wrong in this thread's last call that failed: one sentence, "[operation] expected …, got …";
 * valid until the thread's next call. Empty before any failed. */
const char* linnet_error(void);

linnet_sampling linnet_sampling_default(void);

/* A model's folder. *model belongs to the caller and is freed once; sessions keep what they need of it. */
linnet_status linnet_model_load(const char* folder, linnet_model** model);
void linnet_model_free(linnet_model* model);
int64_t linnet_model_vocabulary(const linnet_model* model);
int64_t linnet_model_classes(const linnet_model* model); /* 0 for models without labels */

/* How a session keeps its streams; linnet_session_options_default() is what NULL stands for. */
typedef struct {
  int64_t capacity; /* tokens a stream to reserve memory for, where a family's memory grows (softmax) */
  int32_t cache;    /* 0 computes every token from the whole sequence again */
  int32_t threads;  /* 1 keeps every step on its caller's thread, for callers with a deadline; 0 uses all */
} linnet_session_options;

linnet_session_options linnet_session_options_default(void);

/* `streams` streams, all begun: with label 0 where the model has classes, and seeds 0, 1, … `options` may be
 * NULL. */
linnet_status linnet_session_create(const linnet_model* model, int64_t streams,
                                    const linnet_session_options* options, linnet_session** session);
void linnet_session_free(linnet_session* session);

/* Forgets what the stream has seen. `label` is the class to draw, −1 for a model without classes; `sampling`
 * may be NULL for the default. */
linnet_status linnet_begin(linnet_session* session, int64_t stream, int64_t label,
                           const linnet_sampling* sampling);

/* Appends given tokens to a stream, in the parallel form. The stream is unchanged where it fails. */
linnet_status linnet_prefill(linnet_session* session, int64_t stream, const int32_t* tokens, size_t count);

/* Draws the next token of each of `count` streams, each at most once, and appends it: tokens[i] belongs to
 * streams[i]. `streams` NULL takes all of the session's, `count` of them. */
linnet_status linnet_step(linnet_session* session, int32_t* tokens, const int64_t* streams, size_t count);

/* Makes `stream` continue exactly as `source` would, with a seed of its own. */
linnet_status linnet_fork(linnet_session* session, int64_t stream, int64_t source, uint64_t seed);

/* Tokens given and drawn so far. */
linnet_status linnet_position(const linnet_session* session, int64_t stream, int64_t* position);

/* The stream as bytes. *size receives how many there are; they are written where `capacity` holds them, and
 * `bytes` may be NULL with capacity 0 to ask for the size. A capacity above 0 that is too small fails. */
linnet_status linnet_save(const linnet_session* session, int64_t stream, void* bytes, size_t capacity,
                          size_t* size);
linnet_status linnet_restore(linnet_session* session, int64_t stream, const void* bytes, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* LINNET_C_API_H_ */
