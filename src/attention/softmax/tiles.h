#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/tiles/rows.h"
#include "attention/visible.h"
#include "linnet/context.h"
#include "linnet/mask.h"
#include "linnet/tensor.h"

namespace linnet::softmax {

/// Queries whose scores are computed together, lane by lane: three AVX-512 vectors. Every tile size is a
/// multiple of 24, so that the micro-kernels of all instruction sets divide it.
inline constexpr std::int64_t kPanel = 48;

/// Keys in a tile: the scores of a panel, 18 KB, and its queries fit the first-level cache.
inline constexpr std::int64_t kKeyTile = 96;

/// Keys of which plain f32 sums are taken; the sums of groups are added up with their rounding errors kept. A
/// multiple of kKeyTile. Groups begin at multiples of it, so that what a query sees decides its bits alone.
inline constexpr std::int64_t kKeyGroup = 64 * kKeyTile;

/// Queries in a block at most, forward or backward.
inline constexpr std::int64_t kMaxQueries = 8 * kPanel;

/// Keys [count, E] with their values [count, M]. `first` is the index of the first one among the keys that
/// the intervals count.
struct KeyRange {
  InputRows key, value;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// What a panel of queries sees of a tile of keys under a boolean mask.
enum class Seen { none, some, all };

/// Fills `tile` [keys][kPanel] with 1 where the block's query `query` + i sees key `key` + j at [j][i], else
/// 0; queries from `queries` on see nothing. The tile means nothing unless the answer is `some`.
Seen fill_seen(std::uint8_t* tile, const Visible& visible, std::int64_t query, std::int64_t queries,
               std::int64_t key, std::int64_t keys);

/// Rows that are needed after a block: its products ask for them. The first `count` ones, or those at
/// `places`.
struct RowsToCome {
  InputRows rows;
  std::int64_t count = 0;
  const std::int64_t* places = nullptr;
};

/// One head's attention for `count` queries, which fit `queries_in_block`.
struct ForwardBlock {
  std::int64_t head_dim = 0, value_dim = 0;
  float scale = 1;
  InputRows query;  ///< of the block's first query, as are out, normaliser and sum
  std::int64_t count = 0;
  KeyRange cached, fresh;  ///< what a state holds and the call's own keys
  Visible sees_cached, sees_fresh;
  OutputRows out;
  const std::int64_t* places = nullptr;  ///< the row of `out` of each query; null: one after the other
  bool stream = false;                   ///< whether `out` is written past the caches
  float* normaliser = nullptr;           ///< of each query the log-sum-exp; may be null
  /// Σ exp(score − maximum), 0 without a key, where that is wanted: `normaliser` is the maximum then.
  float* sum = nullptr;
  std::int64_t normaliser_stride = 0, sum_stride = 0;
  std::array<RowsToCome, 3> to_come;
};

std::int64_t queries_in_block(std::int64_t head_dim, std::int64_t value_dim);

/// The rows that `block` reads first, for the block before it: of a panel of queries and a tile of keys.
std::array<RowsToCome, 3> first_rows(const ForwardBlock& block);

/// Queries of the blocks into which `queries` of each of `heads` heads are divided among threads: large
/// blocks read the keys less often, smaller ones serve where they would be too few.
std::int64_t queries_in_task(std::int64_t head_dim, std::int64_t value_dim, std::int64_t heads,
                             std::int64_t queries);

/// Computes the block on the calling thread, whose context is `own`.
void forward_block(Context& own, const ForwardBlock& block);

/// Adds to the gradients, which are f32, what the pairs of one chunk of queries and one range of keys
/// contribute: to those of the queries a group of keys at a time.
struct BackwardBlock {
  std::int64_t head_dim = 0, value_dim = 0;
  float scale = 1;
  InputRows query, out, grad_out;        ///< of the chunk's first query
  const std::int64_t* places = nullptr;  ///< the row of `out` and `grad_out` of each query; null: in order
  const float* normaliser = nullptr;
  std::int64_t normaliser_stride = 0;
  const float* weight = nullptr;  ///< factor of each query's probabilities; null: 1
  std::int64_t count = 0;         ///< at most `backward_queries`
  KeyRange keys;                  ///< the pointers are those of the range's first key
  Visible sees;
  OutputRows grad_query;
  OutputRows grad_key, grad_value;  ///< data null: the keys are constants
  /// Whether these hold nothing yet: they are assigned, not added to.
  bool begins_queries = false, begins_keys = false;
  std::array<RowsToCome, 6> to_come;
};

/// Keys that one block of the backward pass is given, so that preparing its queries counts for little.
inline constexpr std::int64_t kBackwardKeys = 384;

std::int64_t backward_queries(std::int64_t head_dim, std::int64_t value_dim);

/// As for a forward block.
std::array<RowsToCome, 6> first_rows(const BackwardBlock& block);
void backward_block(Context& own, const BackwardBlock& block);

/// Log-sum-exps from which on, in absolute value, rounding them to f32 is too much: the probabilities
/// exp(score − log-sum-exp) of a query would be 4e-6 off and more.
inline constexpr float kLargeLogSum = 64;

/// Adds to sums [count] the probabilities exp(score − log-sum-exp) of the block's queries, which the rounding
/// of the log-sum-exp keeps from adding up to 1. Reads neither `out` nor `grad_out`.
void add_probabilities(Context& own, const BackwardBlock& block, double* sums);

/// One query against `count` ≥ 1 keys [count, E] and values [count, M], each dense and readable for 64 bytes
/// past their end, both f32 or both bf16. `scratch` holds step_scratch floats, aligned to 64 bytes.
struct StepHead {
  std::int64_t count = 0;
  float scale = 1;
  const float* query = nullptr;
  InputRows keys, values;
  float* out = nullptr;
  float* scratch = nullptr;
};

std::size_t step_scratch(std::int64_t head_dim, std::int64_t value_dim);
void step_head(const StepHead& head);

}  // namespace linnet::softmax
