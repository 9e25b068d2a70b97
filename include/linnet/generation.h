#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "linnet/export.h"
#include "linnet/model.h"

namespace linnet {

/// How the next token is chosen from its distribution p.
struct LINNET_API SamplingOptions {
  double temperature = 1;  ///< p is raised to 1 / temperature; 0: the most probable token
  /// Only the k most probable tokens (Fan et al. 2018).
  std::int64_t top_k = std::numeric_limits<std::int64_t>::max();
  /// Only the smallest set of tokens with total probability top_p, the nucleus (Holtzman et al. 2020, section
  /// 3.1).
  double top_p = 1;
  std::uint64_t seed = 0;  ///< the draw depends on it and the position alone, on every machine

  /// Throws UsageError for an invalid value.
  void check() const;
};

/// Changes the logits of a stream's next token before it is drawn: one per token of the vocabulary, as
/// `Session::logits` gives them; in a model of several fields those of `field`, given the fields before.
/// −∞ leaves a token no probability.
using LogitsProcessor = std::function<void(std::int64_t stream, std::int64_t field, std::span<float> logits)>;

/// Many streams of one model of tokens, each at its own position with its own seed. In a model of several
/// fields every step of a stream has a token of each, and the spans of tokens below are [steps, fields] and
/// [streams, fields]; each field is drawn given those before it. A stream's tokens do not depend on the
/// streams beside it.
/// One session is used by one thread at a time; it works with threads of its own. Every function throws
/// UsageError for a stream that the session does not have.
///
/// No function leaves half a token in a stream. What `step` and `observe` need for growing states (softmax,
/// strided) is taken for all streams and layers before a stream moves: where memory is short they throw
/// std::bad_alloc, and every stream is as it was. `prefill` takes several streams in groups. Where it throws
/// for want of memory (std::bad_alloc, or OutOfMemoryError), each stream has taken its whole prompt or
/// nothing, as `position` tells. `begin`, `fork`, `restore`, `save`, `logits`, `probabilities` and `resize`
/// change nothing where they throw. Where a step fails for another reason, in a feature map of the caller's
/// say, a stream whose layers have not all seen the token cannot continue, as `can_continue` tells.
/// Everything but `begin`, `restore`, a `fork` into it, `set_sampling` and what only tells of it then throws
/// Error for it; the other streams have moved by a token or not at all, as `position` tells; `step` has then
/// written the tokens of those that have.
///
/// There are 1 … 1,048,576 streams. A session that was moved from may only be destroyed or assigned to.
class LINNET_API Session {
 public:
  /// Largest number of tokens that `prefill` takes through the layers together.
  static constexpr std::int64_t prefill_slice = Model::slice;

  struct Options {
    /// Tokens per stream to reserve memory for, in families whose memory grows (softmax).
    std::int64_t capacity = 0;
    /// false computes every token from the whole sequence again, as the paper's baseline does. Not for
    /// encoder–decoder models.
    bool cache = true;
    /// Threads that the session works with, the caller's included; 1 keeps everything on the thread that
    /// calls, for callers with a deadline or with many sessions, each of which has threads of its own; 0
    /// stands for one per processor. Results depend on it as on other
    /// streams.
    int threads = 0;
  };

  /// What a step does beside drawing. Made once and used for many steps, it costs them no allocation.
  struct StepOptions {
    /// Called once for every stream and field, before the stream's sampling options do their part. The
    /// session's threads call it for several streams at once; it may not use the session. Where it throws, or
    /// leaves NaN, +∞ or no token at all (UsageError), that stream is as after a prediction that is not of
    /// finite numbers. Tokens of a categorical head are those without a processor where it changes nothing.
    LogitsProcessor process_logits = {};
    /// Where not empty, [streams, fields]: receives the natural logarithm of the probability of each token
    /// that is drawn. It is the model's own, as in `probabilities`: before the processor, with temperature 1
    /// and without top-k and top-p. NaN for the token −1 of a stream that is lost.
    std::span<float> log_probabilities = {};
  };

  /// `streams` streams, all at their beginning, with label 0 if the model has classes and without a label
  /// otherwise. Throws UsageError for an encoder, and with a cache Error for a family without a recurrent
  /// form.
  Session(std::shared_ptr<const Model> model, std::int64_t streams)
      : Session(std::move(model), streams, Options{}) {}
  Session(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// Starts the stream anew. `label` is the class to draw, −1 for a model without classes. Memory that the
  /// stream's keys and values took (softmax, strided) stays with it for its next tokens; `resize` to
  /// another number of streams keeps as much as they then need. Throws UsageError for a label that the model
  /// does not have and for invalid `sampling`.
  void begin(std::int64_t stream, std::int64_t label, const SamplingOptions& sampling);

  /// The same in an encoder–decoder model, for the tokens of a source. The encoder reads it once, and each
  /// layer keeps what its cross attention needs: sums of a fixed size in the linear family, the keys and
  /// values of the source in the softmax family. `save`, `restore` and `fork` carry it along. Until a stream
  /// of such a model has a source, everything but `begin`, `restore`, a `fork` into it, `set_sampling` and
  /// what only tells of it throws Error for it. Throws UsageError for a model without an encoder, for an
  /// empty source and for tokens outside 0 … ModelConfig::source_tokens() − 1, Error for a source longer than
  /// learned positions; the stream is then unchanged.
  void begin(std::int64_t stream, std::span<const std::int32_t> source, const SamplingOptions& sampling);

  /// Appends given tokens to a stream, in the parallel form, in slices that end where the position is a
  /// multiple of `prefill_slice`. A long prompt may be given in pieces between the steps of other streams.
  /// Pieces that end at such positions give the same bits as one call. Throws UsageError for a token outside
  /// 0 … vocabulary − 1, Error if the final position is outside the model. The stream is then unchanged.
  void prefill(std::int64_t stream, std::span<const std::int32_t> tokens);

  /// The same for several streams, each at most once: prompts[i] belongs to streams[i]. Streams that stand at
  /// the same position pass through the layers together, slice by slice, as long as all of them have tokens
  /// for equal slices; the rest follows one stream after another, as do models with bf16 weights on matrix
  /// units, whose products depend on the number of rows in the last bit. The result is that of one call per
  /// stream, bit for bit. Throws as above; all streams are then unchanged.
  void prefill(std::span<const std::int64_t> streams, std::span<const std::span<const std::int32_t>> prompts);

  /// Appends a given token to each of `streams` (each at most once), in the recurrent form: tokens[i] belongs
  /// to streams[i]. Leaves every stream as a `step` that draws this token, bit for bit, at the same cost less
  /// the output head's. Allocates nothing where `step` does not. Throws UsageError for a token
  /// outside 0 … vocabulary − 1, Error for a position outside the model; all streams are then unchanged.
  void observe(std::span<const std::int32_t> tokens, std::span<const std::int64_t> streams);

  /// The same for all streams.
  void observe(std::span<const std::int32_t> tokens);

  /// Writes the logits [vocabulary] of the stream's next token, as `Model::forward` gives them; with several
  /// fields those of the first, which has `field_sizes()[0]` values. The stream
  /// does not move. Costs a step and a copy of the stream's state. Allocates nothing in families whose state
  /// has a fixed size. Throws UsageError for another size, Error where the model has no next position or its
  /// prediction is not of finite numbers.
  void logits(std::int64_t stream, std::span<float> logits);

  /// The same as probabilities, which add up to 1. They are the model's own, with temperature 1 and without
  /// top-k and top-p.
  void probabilities(std::int64_t stream, std::span<float> probabilities);

  /// Makes the session one of `streams` streams. Those with an index below keep everything, bit for bit; new
  /// ones begin as in the constructor, with label 0 or none and their index as seed. Steps allocate nothing
  /// after it, as after the constructor. Copies the states of all streams and holds both meanwhile: a session
  /// that grows one stream at a time does better to take a share of its size more than it needs. Throws
  /// UsageError for a number that the constructor refuses. The session is unchanged where it throws.
  void resize(std::int64_t streams);

  /// Draws the next token of each of `streams` (each at most once) and appends it: tokens[i] belongs to
  /// streams[i]. Takes constant time per token for models of the linear family. Throws Error where the
  /// prediction of a stream is not of finite numbers, as after an overflow: with a cache that stream, whose
  /// token is then −1, is to begin anew or to be restored, and the others have moved; without one no stream
  /// has.
  void step(std::span<std::int32_t> tokens, std::span<const std::int64_t> streams);

  /// The same for all streams. Steps allocate nothing and write nothing to files; with one thread they take
  /// no lock either. The session may be built on one thread and stepped on another.
  void step(std::span<std::int32_t> tokens);

  /// The same with logits that the caller changes, and with the log-probabilities of the tokens, in the same
  /// single pass through the layers. Throws UsageError for `log_probabilities` of another size.
  void step(std::span<std::int32_t> tokens, std::span<const std::int64_t> streams,
            const StepOptions& options);
  void step(std::span<std::int32_t> tokens, const StepOptions& options);

  /// Changes how the stream's next tokens are drawn, its seed included: `sampling(stream)` is what to change
  /// to keep it. Throws UsageError for invalid `sampling`.
  void set_sampling(std::int64_t stream, const SamplingOptions& sampling);
  SamplingOptions sampling(std::int64_t stream) const;

  /// Makes `stream` continue exactly as `source` would, with its sampling but a seed of its own. With the
  /// seed `sampling(source).seed` both draw the same tokens.
  void fork(std::int64_t stream, std::int64_t source, std::uint64_t seed);

  /// The stream as 88 + `state_bytes` bytes (twice the latter where keys and values are kept as bf16, which
  /// are saved as f32), with a checksum and the fingerprint of its model. It can be restored in any session
  /// of the same model, also in another process. It then continues as it would have here, bit for bit on the
  /// same instruction set.
  std::vector<std::byte> save(std::int64_t stream) const;

  /// Makes `stream` continue the saved stream, including its seed and sampling. Throws Error, and leaves the
  /// stream unchanged, if the bytes are damaged, or belong to another version or model, or if only one of the
  /// two sessions has a cache.
  void restore(std::int64_t stream, std::span<const std::byte> bytes);

  std::int64_t streams() const;

  /// Tokens given and drawn so far.
  std::int64_t position(std::int64_t stream) const;

  /// Most tokens of a stream, or steps of several fields: the model's length with learned positions,
  /// otherwise 2^53.
  std::int64_t limit() const;

  /// Whether the stream takes another step: `position` is below `limit`, no step has failed in it halfway,
  /// and it has a source where the model has an encoder.
  bool can_continue(std::int64_t stream) const;

  /// Bytes of the stream's state or cache, and of its next inputs of fields but the first; without a cache of
  /// its inputs.
  std::size_t state_bytes(std::int64_t stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Many streams of real numbers of one model, step by step: a model of the next step forecasts, one of the
/// same step filters. As in `Session`, a stream's numbers do not depend on the streams beside it, one session
/// is used by one thread at a time, and nothing is allocated after construction where states do not grow. A
/// session that was moved from may only be destroyed or assigned to.
class LINNET_API NumberSession {
 public:
  struct Options {
    std::int64_t capacity = 0;  ///< as in Session::Options
    int threads = 0;            ///< as in Session::Options
  };

  /// `streams` streams, all at their beginning. Throws UsageError for a model that has tokens in its steps,
  /// predicts no numbers or lets steps see later ones, Error for a family without a recurrent form.
  NumberSession(std::shared_ptr<const Model> model, std::int64_t streams)
      : NumberSession(std::move(model), streams, Options{}) {}
  NumberSession(std::shared_ptr<const Model> model, std::int64_t streams, const Options& options);
  ~NumberSession();
  NumberSession(NumberSession&&) noexcept;
  NumberSession& operator=(NumberSession&&) noexcept;

  /// Starts the stream anew. `label` is its class, −1 for a model without classes. Throws UsageError for a
  /// label that the model does not have.
  void begin(std::int64_t stream, std::int64_t label = -1);

  /// Takes the numbers of the next step of each of `streams` (each at most once), in [n · columns], and
  /// writes the means of what the model then predicts, out [n · targets]: the numbers of the steps that
  /// follow (next-token), or the output at this step (same-step). All numbers are in the units of the data;
  /// under data.columns_apart they are (number − mean) / deviation, with the statistics of columns.json. NaN
  /// stands for a missing number and is read as the mean of its column. Constant time per step in the linear
  /// family. Throws UsageError for spans of other sizes and infinite numbers, streams outside or named twice,
  /// and Error for positions outside; nothing has moved then. Throws Error where the prediction of a stream
  /// is not of finite numbers, as after numbers that overflow: that stream, whose numbers in `out` are
  /// NaN then, is to begin anew or to be restored, and the others have moved. A step that fails for another
  /// reason leaves streams as `Session::step` does.
  void step(std::span<const float> in, std::span<float> out, std::span<const std::int64_t> streams);

  /// The same for all streams.
  void step(std::span<const float> in, std::span<float> out);

  /// Takes numbers as `step` does, at the same cost less that of the output head, and predicts nothing. What
  /// has overflowed is found by the next `step`. Throws as `step` does.
  void observe(std::span<const float> in, std::span<const std::int64_t> streams);
  void observe(std::span<const float> in);

  /// The densities of the stream's last prediction, [targets] each, as in `Densities`. Before the first step
  /// of a next-token model, what it predicts for that step. Throws UsageError for spans of other sizes, Error
  /// after `observe`, and before the first step of a same-step model.
  void densities(std::int64_t stream, std::span<float> mean, std::span<float> scale,
                 std::span<float> freedom);

  /// One draw from these densities, out [targets]; it depends on the seed, the position and the target alone.
  /// The scales are multiplied by `temperature`. Throws as `densities` does, and UsageError for a temperature
  /// that is negative or not finite, and for one above 0 in a model of squared errors, which predicts means
  /// alone.
  void draw(std::int64_t stream, std::uint64_t seed, std::span<float> out, double temperature = 1);

  /// Makes `stream` continue as `source` would.
  void fork(std::int64_t stream, std::int64_t source);

  /// Makes the session one of `streams` streams. Those with an index below keep everything, bit for bit; new
  /// ones begin as in the constructor, which it costs as much as, with a copy of all states. Throws
  /// UsageError for a number that the constructor refuses. The session is unchanged where it throws.
  void resize(std::int64_t streams);

  /// As `Session::save` and `restore`, with the last prediction: the density of the numbers that come next is
  /// known after a restart.
  std::vector<std::byte> save(std::int64_t stream) const;
  void restore(std::int64_t stream, std::span<const std::byte> bytes);

  std::int64_t streams() const;
  /// Numbers that are predicted for a step: `ModelConfig::target_count`.
  std::int64_t targets() const;
  /// Steps taken so far.
  std::int64_t position(std::int64_t stream) const;
  /// Most steps of a stream: the model's length with learned positions, otherwise 2^53; one less in a model
  /// of the next step, whose start token comes first.
  std::int64_t limit() const;
  /// Whether the stream takes another step: `position` is below `limit`, and no step has failed in it
  /// halfway.
  bool can_continue(std::int64_t stream) const;
  /// Bytes of the stream's state.
  std::size_t state_bytes(std::int64_t stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace linnet
