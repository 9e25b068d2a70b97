#ifndef LINNET_C_API_H_
#define LINNET_C_API_H_

/* Generation from C and from any language that calls C. Handles are opaque. Every function that can fail
 * returns a status, and no exception leaves it. NULL, sizes and numbers that cannot be are answered with a
 * status and a sentence of linnet_error. The comments of the C++ interface, linnet/generation.h, say more.
 *
 * Any threads may call functions of the same model at once, and share it in their sessions. A session, and a
 * stream of text, is used by one thread at a time, which may be another one from call to call. A model may be
 * freed before its sessions and streams of text, which keep what they need of it.
 *
 * Functions that make an object write its handle, which belongs to the caller and is freed once; where they
 * fail they write NULL, and freeing NULL does nothing. An array of no elements may be NULL, no other pointer
 * may unless its function says so. No array is kept behind the call.
 *
 * Where a call fails, a stream is as it was before, but where linnet_step and linnet_number_step say
 * otherwise. One that a step left between two layers of the model cannot continue: calls that move or read it
 * fail and say so, until it is begun, restored or forked into. Too little memory for what streams keep is
 * found before any of them moves.
 *
 * The program may end, by exit or by returning from main, while other threads are inside calls. In functions
 * that run then (atexit), streams may be saved, moved and freed, and models loaded.
 *
 * A child process after `fork` may use the models and sessions of its parent, and make its own, if no call
 * was in progress in the parent when it forked. A session of the parent works on the calling thread alone
 * there, with the same results.
 *
 * Structs of options begin with their size in bytes, so that later versions can add members at the end, and
 * have no padding. The functions linnet_…_init set the size and the defaults:
 *
 *   linnet_sampling sampling;
 *   linnet_sampling_init(&sampling, sizeof sampling);
 *   sampling.temperature = 0.8;
 */

#include <stddef.h>
#include <stdint.h>

#include "linnet/export.h"
#include "linnet/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As large as an int. Later versions may add numbers. */
typedef enum {
  LINNET_OK = 0,
  LINNET_FAILED = 1, /* an invalid file or snapshot, or a stream that cannot do it; linnet_error says which */
  LINNET_USAGE = 2,  /* an invalid argument: a stream, token, label, size or option that cannot be, or memory
                        that is too small for what it is to hold */
  LINNET_OUT_OF_MEMORY = 3
} linnet_status;

typedef struct linnet_model linnet_model;
typedef struct linnet_session linnet_session;
typedef struct linnet_number_session linnet_number_session;
typedef struct linnet_text_stream linnet_text_stream;

/* The version of the library that the program runs with, "0.2.0"; LINNET_VERSION is that of this header, as a
 * number. */
LINNET_API const char* linnet_version(void);

/* How the next token is chosen; the defaults leave the distribution as it is, with seed 0. */
typedef struct {
  size_t size;        /* sizeof(linnet_sampling) */
  double temperature; /* finite, at least 0, which takes the most probable token; default: 1 */
  int64_t top_k;      /* only the k most probable tokens, at least 1; default: INT64_MAX */
  double top_p;       /* only the smallest set of tokens with total probability top_p, above 0, at most 1;
                         default: 1 */
  uint64_t seed;
} linnet_sampling;

/* What went wrong in this thread's last call that failed: one sentence, as a rule "[operation] expected …,
 * got …"; valid until the thread's next call. Empty before any failed. UTF-8, but for names of files that are
 * not. Functions that return a number or a text set it too where they return -1 or NULL for an argument that
 * cannot be. */
LINNET_API const char* linnet_error(void);

LINNET_API linnet_status linnet_sampling_init(linnet_sampling* sampling, size_t size);

/* A model's folder. */
LINNET_API linnet_status linnet_model_load(const char* folder, linnet_model** model);
LINNET_API void linnet_model_free(linnet_model* model);
/* Tokens are 0 … vocabulary - 1, labels 0 … classes - 1; 0 classes for models without labels, a vocabulary of
 * 0 for models of numbers alone. -1 where `model` is NULL. */
LINNET_API int64_t linnet_model_vocabulary(const linnet_model* model);
LINNET_API int64_t linnet_model_classes(const linnet_model* model);
/* Tokens of a step: 1; more in a model of several fields, whose arrays of tokens are [steps, fields] below; 0
 * in a model of numbers alone. Field f has the tokens 0 … linnet_model_field_vocabulary(model, f) - 1; that
 * of the first field is linnet_model_vocabulary. -1 for NULL and for a field that there is not. */
LINNET_API int64_t linnet_model_fields(const linnet_model* model);
LINNET_API int64_t linnet_model_field_vocabulary(const linnet_model* model, int64_t field);
/* Tokens that a source of an encoder–decoder model may have; 0 for models without an encoder, -1 for NULL. */
LINNET_API int64_t linnet_model_source_vocabulary(const linnet_model* model);
/* Numbers of a step, and numbers that are predicted for a step; 0 for models of tokens alone, -1 for NULL. */
LINNET_API int64_t linnet_model_columns(const linnet_model* model);
LINNET_API int64_t linnet_model_targets(const linnet_model* model);
/* Numbers of a row of linnet_model_hidden. -1 for NULL. */
LINNET_API int64_t linnet_model_width(const linnet_model* model);

/* Texts that live as long as the model. Its configuration, the JSON of config.json (docs/format.md), which
 * says what kind of model it is. The name of a label; NULL where the model has no names. The JSON of
 * columns.json, with the names of columns and, of a model with data.columns_apart, their statistics; NULL
 * where the model has none. */
LINNET_API const char* linnet_model_config(const linnet_model* model);
LINNET_API const char* linnet_model_class_name(const linnet_model* model, int64_t label);
LINNET_API const char* linnet_model_columns_json(const linnet_model* model);

/* Logits [batch, length, vocabulary] of the inputs tokens [batch · length] in the parallel form, written to
 * `logits`, which has `count` numbers, batch · length · vocabulary. Row i of an entry predicts the token
 * after the inputs 0 … i; the first input is `linnet_model_first_input`. In a masked model row i predicts the
 * token at position i, and that input stands for a hidden one. `key_lengths` [batch] are the tokens of each
 * entry, before its padding; NULL where all entries are whole. `threads` as in linnet_session_options; the
 * model keeps them and their working memory for its next calls, those of four calls at most. For models of
 * one token per step, without an encoder, that predict tokens. */
LINNET_API linnet_status linnet_model_forward(const linnet_model* model, int32_t threads,
                                              const int32_t* tokens, int64_t batch, int64_t length,
                                              const int64_t* key_lengths, float* logits, size_t count);

/* The first input of a sequence: the token of class `label`, or with label -1 the start token of a model
 * without classes; in a masked model the input in place of a hidden token. */
LINNET_API linnet_status linnet_model_first_input(const linnet_model* model, int64_t label, int32_t* token);

/* What classifiers say of sequences, the densities of real numbers, and the rows that the output head takes,
 * which are the embeddings of the steps in their context. The steps are tokens [batch · length · fields],
 * numbers values [batch · length · columns] in the units of the data (NAN is read as the mean), or both: NULL
 * for what the model does not take. `key_lengths` and `threads` as in linnet_model_forward.
 *
 * linnet_model_classify: probabilities [batch, classes] of the labels, for models of the objective classify.
 *
 * linnet_model_predict: mean, scale and freedom [batch, length, targets], each of `count` numbers, as
 * linnet_number_densities says. In a model of the next step the first step is linnet_model_first_input, in
 * further fields the number of their values, with numbers of NAN; in one of real numbers alone that input is
 * `tokens`, followed by -1. In a model of the same step steps are the inputs themselves.
 *
 * linnet_model_hidden: rows [batch, length, width], for the inputs that the model's other functions take. Not
 * for models with an encoder. */
LINNET_API linnet_status linnet_model_classify(const linnet_model* model, int32_t threads,
                                               const int32_t* tokens, const float* values, int64_t batch,
                                               int64_t length, const int64_t* key_lengths,
                                               float* probabilities, size_t count);
LINNET_API linnet_status linnet_model_predict(const linnet_model* model, int32_t threads,
                                              const int32_t* tokens, const float* values, int64_t batch,
                                              int64_t length, const int64_t* key_lengths, float* mean,
                                              float* scale, float* freedom, size_t count);
LINNET_API linnet_status linnet_model_hidden(const linnet_model* model, int32_t threads,
                                             const int32_t* tokens, const float* values, int64_t batch,
                                             int64_t length, const int64_t* key_lengths, float* hidden,
                                             size_t count);

/* Natural logarithm of the probability of each of `count` tokens of one sequence, given those before it and
 * the label, -1 for a model without classes: log_probabilities [count]. Of several fields these are the
 * tokens [steps, fields], each predicted from the fields of its step before it, too. For models of tokens
 * alone that predict the next step. */
LINNET_API linnet_status linnet_model_score(const linnet_model* model, int32_t threads, const int32_t* tokens,
                                            size_t count, int64_t label, float* log_probabilities);

/* The same for an encoder–decoder model, whose tokens also depend on the `source_count` tokens of a source,
 * at least one. */
LINNET_API linnet_status linnet_model_score_with_source(const linnet_model* model, int32_t threads,
                                                        const int32_t* source, size_t source_count,
                                                        const int32_t* tokens, size_t count,
                                                        float* log_probabilities);

/* The tokens of a text in UTF-8 of `bytes` bytes, and the text of tokens, for models of text: those with a
 * tokenizer, those of 256 tokens, which are bytes, and those of pairs, whose tokens are bytes and the two
 * below, which have no text. *count (of linnet_model_decode *bytes) receives the number of tokens (bytes),
 * which are written where `capacity` holds them; the buffer may be NULL with capacity 0 to ask for it, which
 * costs as much. A capacity above 0 that is too small is LINNET_USAGE, and the number is there. A text has no
 * 0 at its end. Bytes of a character that is not whole become U+FFFD, unless tokens are bytes. */
LINNET_API linnet_status linnet_model_encode(const linnet_model* model, const char* text, size_t bytes,
                                             int32_t* tokens, size_t capacity, size_t* count);
LINNET_API linnet_status linnet_model_decode(const linnet_model* model, const int32_t* tokens, size_t count,
                                             char* text, size_t capacity, size_t* bytes);

/* The text of tokens that come one by one, in whole characters: what linnet_text_stream_add and at the end
 * linnet_text_stream_finish give is what linnet_model_decode gives for all tokens together, in constant time
 * per token and constant memory. The text goes on behind the tokens `before`, a prompt or the context of
 * another stream; their own text is not given again. *text, of *bytes bytes and a 0, is the stream's and
 * valid until its next call: often it is empty, where bytes of a character have to follow.
 * linnet_text_stream_context gives a few tokens behind which another stream goes on exactly as this one, to
 * be saved beside a snapshot; `capacity` as above. */
LINNET_API linnet_status linnet_text_stream_create(const linnet_model* model, const int32_t* before,
                                                   size_t count, linnet_text_stream** stream);
LINNET_API void linnet_text_stream_free(linnet_text_stream* stream);
LINNET_API linnet_status linnet_text_stream_add(linnet_text_stream* stream, int32_t token, const char** text,
                                                size_t* bytes);
LINNET_API linnet_status linnet_text_stream_finish(linnet_text_stream* stream, const char** text,
                                                   size_t* bytes);
LINNET_API linnet_status linnet_text_stream_context(const linnet_text_stream* stream, int32_t* tokens,
                                                    size_t capacity, size_t* count);

/* Tokens of a model of pairs of texts, sources and targets: the one after a source, in a model without an
 * encoder, and the one after a target, where an answer ends. -1 for other models and NULL. */
LINNET_API int32_t linnet_model_separator(const linnet_model* model);
LINNET_API int32_t linnet_model_end(const linnet_model* model);

/* Sessions are for models of tokens, of one or of several fields, and for encoder–decoder models. Those of
 * numbers have linnet_number_session below. For models of both in one step, of labels and of hidden tokens
 * there are no streams. */

/* How a session keeps its streams; NULL stands for the defaults. */
typedef struct {
  size_t size;      /* sizeof(linnet_session_options) */
  int64_t capacity; /* tokens a stream to reserve memory for, where a family's memory grows (softmax);
                       default: 0 */
  int32_t cache;    /* 0 computes every token from the whole sequence again, for models of one token per step
                       without an encoder; default: 1 */
  int32_t threads;  /* of the session, the caller's included, at most 1024; 1 for callers with a deadline; 0,
                       the default, is one per processor. No session is made where a thread is refused. */
} linnet_session_options;

LINNET_API linnet_status linnet_session_options_init(linnet_session_options* options, size_t size);

/* `streams` streams, 1 … 1048576, all begun: with label 0 where the model has classes, and seeds 0, 1, …
 * Those of an encoder–decoder model wait for linnet_begin_with_source. `options` may be NULL. */
LINNET_API linnet_status linnet_session_create(const linnet_model* model, int64_t streams,
                                               const linnet_session_options* options,
                                               linnet_session** session);
LINNET_API void linnet_session_free(linnet_session* session);
/* How many streams there are; -1 for NULL. */
LINNET_API int64_t linnet_session_streams(const linnet_session* session);

/* Starts the stream anew. `label` is the class to draw, −1 for a model without classes; `sampling`
 * may be NULL for the default. */
LINNET_API linnet_status linnet_begin(linnet_session* session, int64_t stream, int64_t label,
                                      const linnet_sampling* sampling);

/* The same in an encoder–decoder model, for the `count` tokens of a source, which the encoder reads once. */
LINNET_API linnet_status linnet_begin_with_source(linnet_session* session, int64_t stream,
                                                  const int32_t* source, size_t count,
                                                  const linnet_sampling* sampling);

/* Appends the given tokens of `count` steps to a stream, in the parallel form. The stream is unchanged where
 * it fails. */
LINNET_API linnet_status linnet_prefill(linnet_session* session, int64_t stream, const int32_t* tokens,
                                        size_t count);

/* Appends a given token to each of `count` streams, each at most once, in the recurrent form: tokens[i], or
 * row i of [count, fields], belongs to streams[i]. `streams` NULL takes all of the session's, `count` of
 * them. Leaves every stream as a step that draws this token, bit for bit. All streams are unchanged where it
 * fails. */
LINNET_API linnet_status linnet_observe(linnet_session* session, const int32_t* tokens,
                                        const int64_t* streams, size_t count);

/* Logits, or probabilities, of the stream's next token, with several fields of the first one; `count` is
 * linnet_model_vocabulary. The stream does not move. */
LINNET_API linnet_status linnet_logits(linnet_session* session, int64_t stream, float* logits, size_t count);
LINNET_API linnet_status linnet_probabilities(linnet_session* session, int64_t stream, float* probabilities,
                                              size_t count);

/* Makes the session one of `streams` streams. Those with an index below keep everything; new ones are begun
 * as by linnet_session_create. The session is unchanged where it fails; memory has to hold what both keep
 * meanwhile, also for fewer streams. */
LINNET_API linnet_status linnet_session_resize(linnet_session* session, int64_t streams);

/* Draws the next token of each of `count` streams, each at most once, and appends it: tokens[i], or row i of
 * [count, fields], belongs to streams[i]. `streams` NULL takes all of the session's, `count` of them. Where
 * the prediction of a stream is not of finite numbers, or the step fails within the model for another reason,
 * that stream cannot continue, and the others have moved or not, as linnet_position tells; `tokens` then
 * holds those of the streams that have, and -1 for the others. Where the arguments are refused, nothing is
 * written. */
LINNET_API linnet_status linnet_step(linnet_session* session, int32_t* tokens, const int64_t* streams,
                                     size_t count);

/* Changes the `count` logits of a stream's next token of `field` (0 where there is one), one per token of its
 * vocabulary, before it is drawn; -INFINITY leaves a token no probability. `data` is the caller's. Returns 0,
 * or another number to fail; it must neither throw nor unwind. It may use other sessions and models. */
typedef int32_t (*linnet_logits_processor)(void* data, int64_t stream, int64_t field, float* logits,
                                           size_t count);

/* What a step does beside drawing; the defaults do nothing. */
typedef struct {
  size_t size; /* sizeof(linnet_step_options) */
  /* NULL, or called once for every stream, by the session's threads for several streams at once; for several
     fields once for each, in their order. It may not use the session. Where it fails, or leaves NaN, INFINITY
     or no token at all, its stream is as after a prediction that is not of finite numbers. */
  linnet_logits_processor process_logits;
  void* data;
  /* NULL, or memory for as many numbers as tokens: receives the natural logarithm of the model's own
     probability of each token, as linnet_model_score gives it; NAN where `tokens` has -1. */
  float* log_probabilities;
} linnet_step_options;

LINNET_API linnet_status linnet_step_options_init(linnet_step_options* options, size_t size);

/* linnet_step with options, which may be NULL. */
LINNET_API linnet_status linnet_step_with_options(linnet_session* session, int32_t* tokens,
                                                  const int64_t* streams, size_t count,
                                                  const linnet_step_options* options);

/* Changes how the stream's next tokens are drawn, its seed included; `sampling` may be NULL for the default
 * with the seed 0. */
LINNET_API linnet_status linnet_set_sampling(linnet_session* session, int64_t stream,
                                             const linnet_sampling* sampling);

/* How the stream's next tokens are drawn: what linnet_set_sampling and linnet_begin were given, or a snapshot
 * had. `size` is sizeof *sampling. */
LINNET_API linnet_status linnet_get_sampling(const linnet_session* session, int64_t stream,
                                             linnet_sampling* sampling, size_t size);

/* Makes `stream` continue exactly as `source` would, with its sampling but a seed of its own. */
LINNET_API linnet_status linnet_fork(linnet_session* session, int64_t stream, int64_t source, uint64_t seed);

/* Tokens given and drawn so far; steps of several fields. */
LINNET_API linnet_status linnet_position(const linnet_session* session, int64_t stream, int64_t* position);

/* Most tokens of a stream, or steps of several fields: the model's length with learned positions, otherwise
 * 2^53. */
LINNET_API linnet_status linnet_limit(const linnet_session* session, int64_t* limit);

/* *can is 1 where the stream takes another step, and 0 at the limit, where a step has failed in it, and
 * without the source that an encoder–decoder model needs. */
LINNET_API linnet_status linnet_can_continue(const linnet_session* session, int64_t stream, int32_t* can);

/* The stream as bytes. *size receives how many there are; they are written where `capacity` holds them, and
 * `bytes` may be NULL with capacity 0 to ask for the size, which costs as much. A capacity above 0 that is
 * too small is LINNET_USAGE, and the size is there. */
LINNET_API linnet_status linnet_save(const linnet_session* session, int64_t stream, void* bytes,
                                     size_t capacity, size_t* size);
LINNET_API linnet_status linnet_restore(linnet_session* session, int64_t stream, const void* bytes,
                                        size_t size);

/* Streams of real numbers, for models of numbers alone: one of the next step forecasts, one of the same step
 * filters. Steps take constant time and memory in the linear family. `options` as above, with the cache 1. */
LINNET_API linnet_status linnet_number_session_create(const linnet_model* model, int64_t streams,
                                                      const linnet_session_options* options,
                                                      linnet_number_session** session);
LINNET_API void linnet_number_session_free(linnet_number_session* session);
/* As linnet_session_streams. */
LINNET_API int64_t linnet_number_session_streams(const linnet_number_session* session);

/* Starts the stream anew; `label` is its class, -1 for a model without classes. */
LINNET_API linnet_status linnet_number_begin(linnet_number_session* session, int64_t stream, int64_t label);

/* Takes the numbers of the next step of each of `count` streams, each at most once: row i of in
 * [count, columns] belongs to streams[i], and `streams` NULL takes all of the session's, `count` of them.
 * Writes the means of what the model then predicts, out [count, targets], in the units of the data: the
 * numbers of the steps that follow, or the output at this step. (Models that were trained with
 * data.columns_apart take and give (number - mean) / deviation, with the statistics of columns.json.) NAN
 * stands for a missing number and is read as the mean of its column; an infinite one fails, and nothing has
 * moved then. Where the prediction of a stream is not of finite numbers, that stream cannot continue, and the
 * others have moved; its row of `out` is NAN. `in` and `out` may be the same memory where columns and targets
 * are as many. */
LINNET_API linnet_status linnet_number_step(linnet_number_session* session, const float* in, float* out,
                                            const int64_t* streams, size_t count);

/* Takes numbers as linnet_number_step does and predicts nothing, which is cheaper. */
LINNET_API linnet_status linnet_number_observe(linnet_number_session* session, const float* in,
                                               const int64_t* streams, size_t count);

/* The stream's last prediction as densities; `count` is linnet_model_targets for each array. A Gaussian of
 * that mean and standard deviation where `freedom` is INFINITY, else Student's t of that location, scale and
 * degrees of freedom. Before the first step of a model of the next step, what it predicts for that step.
 * Fails after linnet_number_observe, and before the first step of a model of the same step. */
LINNET_API linnet_status linnet_number_densities(linnet_number_session* session, int64_t stream, float* mean,
                                                 float* scale, float* freedom, size_t count);

/* One draw from these densities, out [targets], with scales multiplied by `temperature`, which is 0 for a
 * model of squared errors: it predicts means alone. It depends on the seed, the position and the target
 * alone. */
LINNET_API linnet_status linnet_number_draw(linnet_number_session* session, int64_t stream, uint64_t seed,
                                            double temperature, float* out, size_t count);

/* As linnet_fork (without a seed, which each draw has), linnet_position (steps taken so far), linnet_limit
 * (one less in a model of the next step), linnet_can_continue, linnet_save and
 * linnet_restore, with the last prediction. */
LINNET_API linnet_status linnet_number_fork(linnet_number_session* session, int64_t stream, int64_t source);
/* As linnet_session_resize. */
LINNET_API linnet_status linnet_number_session_resize(linnet_number_session* session, int64_t streams);
LINNET_API linnet_status linnet_number_position(const linnet_number_session* session, int64_t stream,
                                                int64_t* position);
LINNET_API linnet_status linnet_number_limit(const linnet_number_session* session, int64_t* limit);
LINNET_API linnet_status linnet_number_can_continue(const linnet_number_session* session, int64_t stream,
                                                    int32_t* can);
LINNET_API linnet_status linnet_number_save(const linnet_number_session* session, int64_t stream, void* bytes,
                                            size_t capacity, size_t* size);
LINNET_API linnet_status linnet_number_restore(linnet_number_session* session, int64_t stream,
                                               const void* bytes, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* LINNET_C_API_H_ */
