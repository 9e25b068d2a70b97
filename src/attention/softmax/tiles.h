#pragma once

#include <cstddef>
#include <cstdint>

namespace linnet::softmax {

/// Queries whose scores are computed together, lane by lane: three AVX-512 vectors. Every tile size is a
/// multiple of 24, so that the micro-kernels of all instruction sets divide it.
inline constexpr std::int64_t kPanel = 48;

/// Keys in a tile: the scores of a panel, 18 KB, and its queries fit the first-level cache.
inline constexpr std::int64_t kKeyTile = 96;

/// Rows of one head: row i begins at data + i · stride.
struct Rows {
  const float* data = nullptr;
  std::int64_t stride = 0;
};

struct MutableRows {
  float* data = nullptr;
  std::int64_t stride = 0;
};

/// Keys [count, E] with their values [count, M]. `first` is the index of the first one among the keys of the
/// call; under a causal mask query i sees the keys up to index i.
struct KeyRange {
  Rows key, value;
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One head's attention for queries `first` … `first + count`, which fit `queries_in_block`.
struct ForwardBlock {
  std::int64_t head_dim = 0, value_dim = 0;
  float scale = 1;
  bool causal = false;
  Rows query;  ///< of the block's first query, as are out and normaliser
  std::int64_t first = 0, count = 0;
  KeyRange cached;  ///< seen by every query
  KeyRange fresh;   ///< under the mask
  MutableRows out;
  MutableRows normaliser;  ///< data may be null
  float* scratch = nullptr;
};

std::int64_t queries_in_block(std::int64_t head_dim, std::int64_t value_dim);
std::size_t forward_scratch(std::int64_t head_dim, std::int64_t value_dim);
void forward_block(const ForwardBlock& block);

/// Adds to the gradients what the pairs of one chunk of queries and one range of keys contribute.
struct BackwardBlock {
  std::int64_t head_dim = 0, value_dim = 0;
  float scale = 1;
  bool causal = false;
  Rows query, out, grad_out, normaliser;  ///< of the chunk's first query
  std::int64_t first = 0, count = 0;      ///< at most `backward_chunk` queries
  KeyRange keys;                          ///< the pointers are those of the range's first key
  MutableRows grad_query;
  MutableRows grad_key, grad_value;  ///< data null: the keys are constants
  float* scratch = nullptr;
};

std::int64_t backward_chunk(std::int64_t head_dim, std::int64_t value_dim);
std::size_t backward_scratch(std::int64_t head_dim, std::int64_t value_dim);
void backward_block(const BackwardBlock& block);

/// One query against `count` ≥ 1 keys [count, E] and values [count, M], each dense and readable for 64 bytes
/// past their end. `scratch` holds step_scratch floats, aligned to 64 bytes.
struct StepHead {
  std::int64_t head_dim = 0, value_dim = 0, count = 0;
  float scale = 1;
  const float *query = nullptr, *keys = nullptr, *values = nullptr;
  float* out = nullptr;
  float* scratch = nullptr;
};

std::size_t step_scratch(std::int64_t head_dim, std::int64_t value_dim);
void step_head(const StepHead& head);

}  // namespace linnet::softmax
