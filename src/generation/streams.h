#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/first_failure.h"
#include "base/parallel.h"
#include "kernels/dense.h"
#include "linnet/layer_types.h"
#include "linnet/model.h"
#include "linnet/tensor.h"
#include "model/transformer.h"

namespace linnet {

// What sessions of tokens and of numbers share.

/// Throws UsageError, naming the kind of session, for a number of streams that none can have.
inline void check_streams(const char* session, std::int64_t streams) {
  constexpr std::int64_t most = 1 << 20;
  if (streams < 1 || streams > most)
    fail<UsageError>(session, "expected 1 … {} streams, got {}", most, streams);
}

/// Throws UsageError where there is no model.
inline void check_given(const char* session, const std::shared_ptr<const Model>& model) {
  if (model == nullptr) fail<UsageError>(session, "expected a model, got none");
}

/// Throws UsageError for a temperature by which scales of densities cannot be multiplied.
inline void check_temperature(const char* operation, double temperature) {
  if (!(temperature >= 0) || std::isinf(static_cast<float>(temperature)))
    fail<UsageError>(operation, "expected a temperature of at least 0 that a float holds, got {}",
                     temperature);
}

/// Whether none of a dense row's numbers is infinite or NaN. Without branches, as bits: a step has little
/// time.
inline bool all_finite(View<const float> row) {
  std::int32_t most = 0;
  for (std::int64_t i = 0; i < row.size(); ++i)
    most = std::max(most, std::bit_cast<std::int32_t>(row.data()[i]) & 0x7fffffff);
  return most < 0x7f800000;
}

/// Throws Error for a stream that has no step at `position`; `limit` as in Session.
inline void check_limit(const char* operation, std::int64_t stream, std::int64_t position,
                        std::int64_t limit) {
  if (position < limit) return;
  const bool learned = limit < State::most_position - 1;
  fail(operation, "expected at most {} steps of a stream{}, got position {} in stream {}{}", limit,
       learned ? ", the learned positions of this model" : "", position, stream,
       learned ? "; a model with sinusoidal or rotary positions goes on beyond its trained length" : "");
}

[[noreturn]] inline void fail_not_finite(const char* operation, std::int64_t stream) {
  fail(operation, "expected a prediction of finite numbers, got another one in stream {}", stream);
}

/// Streams that one thread takes through all layers together where `count` are stepped of a model with
/// weights of that type. The split may follow the number of threads: rows do not influence each other.
inline std::int64_t block_of(std::int64_t count, std::int64_t threads, WeightType weights) {
  constexpr std::int64_t most_block = 64;
  // Up to so many streams reading the weights takes longer than anything else: they stay together, and all
  // threads share their products. Narrow weights are read sooner, but for those of bf16 beside matrix units,
  // whose products take less time than that.
  using kernels::multiplies_fast, kernels::multiplies_by_units;
  static const std::int64_t most_of_bf16 =
      multiplies_fast(WeightType::bf16) && !multiplies_by_units(WeightType::bf16) ? 4 : 8;
  const std::int64_t most_together = weights == WeightType::f32    ? 8
                                     : weights == WeightType::bf16 ? most_of_bf16
                                                                   : 2;
  const std::int64_t share = count <= most_together ? count : (count + threads - 1) / threads;
  return std::clamp<std::int64_t>(share, 1, most_block);
}

/// The largest block of steps of up to `count` streams, and the most blocks of one: a few streams may stay
/// together in a larger block than more of them are split into.
struct LargestBlocks {
  LargestBlocks(std::int64_t count, std::int64_t threads, WeightType weights) {
    for (std::int64_t n = 1; n <= count; ++n) {
      const std::int64_t block = block_of(n, threads, weights);
      streams = std::max(streams, block);
      blocks = std::max(blocks, (n + block - 1) / block);
    }
  }
  std::int64_t streams = 0, blocks = 0;
};

/// The streams of a session. A Stream has `broken`, whether a step has failed between two layers of its
/// state, and `steps()`, those that its state has taken.
template <class Stream>
class Streams {
 public:
  /// `session` is named by errors.
  Streams(const char* session, std::int64_t count) : session_(session) { resize(count); }

  std::int64_t size() const { return std::ssize(streams_); }

  /// The indices of all streams.
  std::span<const std::int64_t> all() const { return all_; }

  void resize(std::int64_t count) {
    streams_.resize(static_cast<std::size_t>(count));
    named_.assign(streams_.size(), 0);
    all_.resize(streams_.size());
    std::iota(all_.begin(), all_.end(), 0);
  }

  /// Throws UsageError for an index outside.
  Stream& at(std::int64_t index) {
    if (index < 0 || index >= size())
      fail<UsageError>(session_, "expected a stream in 0 … {}, got {}", size() - 1, index);
    return streams_[static_cast<std::size_t>(index)];
  }

  /// The same, and Error for a stream that cannot continue.
  Stream& whole(const char* operation, std::int64_t index) {
    Stream& chosen = at(index);
    if (chosen.broken)
      fail(operation,
           "expected a stream that can continue, got stream {}, in which a step failed halfway: begin it "
           "anew, or restore it",
           index);
    return chosen;
  }

  /// The same for all that are named, and UsageError where one is named twice.
  void check_once(const char* operation, std::span<const std::int64_t> chosen) {
    ++check_;
    for (const std::int64_t index : chosen) {
      whole(operation, index);
      if (std::exchange(named_[static_cast<std::size_t>(index)], check_) == check_)
        fail<UsageError>(operation, "expected every stream at most once, got stream {} twice", index);
    }
  }

  /// Calls body(own, first, count, block) for blocks of the streams that are stepped. Where one fails,
  /// streams may have moved in some layers of `state` and not in others, and are then broken.
  template <class Body>
  void in_blocks(Context& context, const RecurrentState& state, std::span<const std::int64_t> chosen,
                 std::int64_t block, const Body& body) {
    const std::int64_t count = std::ssize(chosen);
    try {
      // Also a loop of one thread goes on where a block fails: the others have moved then.
      FirstFailure failure;
      // A single block gets the whole context, whose threads share its products.
      parallel_for(context, (count + block - 1) / block, [&](Context& own, std::int64_t i) {
        const std::int64_t first = i * block;
        failure.guard(i, [&] {
          body(own, static_cast<std::size_t>(first), static_cast<std::size_t>(std::min(block, count - first)),
               i);
        });
      });
      failure.rethrow();
    } catch (...) {
      for (const std::int64_t index : chosen) {
        Stream& one = at(index);
        one.broken = !state.stands_at(index, one.steps());
      }
      throw;
    }
  }

 private:
  const char* session_;
  std::vector<Stream> streams_;
  std::vector<std::int64_t> all_;
  std::vector<std::uint64_t> named_;  ///< the last check that named the stream
  std::uint64_t check_ = 0;
};

}  // namespace linnet
